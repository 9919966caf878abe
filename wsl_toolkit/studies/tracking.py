"""A study in MLflow: one experiment; a run for the study, below it one for each cell, below that one for each job.

Delivery can be repeated at will. The store itself says what has arrived (each run is tagged with its key), a job's run
is closed only when everything is in it, and metrics carry the result's own time stamp, so that MLflow takes a repeated
one for the same one. Parents are SCHEDULED until complete: a study that was killed never says RUNNING. A store that
goes away is asked again later, first what it has; a slow one is left in peace for most of the time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wsl_toolkit.errors import TrackingError, one_line
from wsl_toolkit.runs.tracking.store import BATCH, Tracker, import_mlflow, redact
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Cell, Study
from wsl_toolkit.studies.jobs import DIVERGED, JobResult
from wsl_toolkit.studies.store import describe_point
from wsl_toolkit.system import environment

KEY = "wsl.key"
STUDY = "wsl.study"
SELECTION = "wsl.selection"
OPEN = "SCHEDULED"
DELETED = "DELETED"
ALL_RUNS = 3  # mlflow.entities.ViewType.ALL: a run that the user deleted stays deleted

SLOW_SECONDS, SHARE_OF_TIME = 2.0, 0.05
"""A store that takes longer than this for one job gets no more than this share of the time while others are trained."""


def experiment_name(study: str) -> str:
    """Return the experiment of a study."""
    return f"wsl-study-{study}"


class Ledger:
    """What of a study is in the tracking store; a store that goes away stops nothing and is caught up with later."""

    def __init__(self, tracker: Tracker, study: Study, note: Callable[[str], None]) -> None:
        self.tracker = tracker
        self.study = study
        self.client = tracker.client
        self._note = note
        self._behind = False
        """Whether the store lacks something that was to be sent."""
        self._in_doubt = False
        """Whether something may have arrived although the store did not say so."""
        self._failures = 0
        self._all_trained = False
        self._runs: dict[str, tuple[str, str]] = {}
        try:
            self._read()
        except Exception as error:
            raise TrackingError(
                f"the tracking store {redact(tracker.uri)} cannot be read: {redact(one_line(error))}"
            ) from None

    def _read(self) -> None:
        """Learn which runs are there, and which of them are complete."""
        found: dict[str, list[Any]] = {}
        token = None
        while True:
            page = self.client.search_runs(
                [self.tracker.experiment_id],
                filter_string=f"tags.`{STUDY}` = '{self.study.name}'",
                run_view_type=ALL_RUNS,
                order_by=["attributes.start_time ASC"],
                max_results=1000,
                page_token=token,
            )
            for run in page:
                if KEY in run.data.tags:
                    found.setdefault(run.data.tags[KEY], []).append(run)
            token = page.token
            if not token:
                break
        self._runs = {key: self._settle(key, runs) for key, runs in found.items()}
        self._in_doubt = False

    def _settle(self, key: str, runs: list[Any]) -> tuple[str, str]:
        """Return the run of a key and its status; a second one, left by a request whose answer was lost, is deleted."""
        active = [run for run in runs if run.info.lifecycle_stage == "active"]
        if not active:
            return runs[0].info.run_id, DELETED
        known = self._runs.get(key, ("", ""))[0]
        unfinished = (OPEN, "RUNNING")
        active.sort(key=lambda run: (run.info.run_id != known, run.info.status in unfinished))
        for double in active[1:]:
            if double.info.status in unfinished:
                self.client.delete_run(double.info.run_id)
        run_id, status = active[0].info.run_id, active[0].info.status
        if status == "RUNNING":  # whoever made it got no further
            self.client.update_run(run_id, status=OPEN)
            status = OPEN
        return run_id, status

    @property
    def delivered(self) -> int:
        """How many jobs are complete in the store."""
        return sum(key.startswith("job:") and status != OPEN for key, (_, status) in self._runs.items())

    def begin(self) -> None:
        """See to it that the study has its run before any worker starts."""
        self._try(self.study_run)

    def study_run(self) -> str:
        """Return the study's own run."""
        title = self.study.title or self.study.name
        about = f"**{title}**\n\nSelected by {self.study.selection}."
        return self._ensure("study", f"{self.study.name}{self._oracle}", None, {}, about)

    @property
    def _oracle(self) -> str:
        """What the name of everything that clean labels helped to choose ends with."""
        return " | ORACLE selection" if self.study.selection.is_oracle else ""

    def cell_run(self, cell: Cell) -> str:
        """Return a cell's run."""
        name = f"{cell.label}{self._oracle}"
        return self._ensure(f"cell:{cell.label}", name, self.study_run(), self._cell_params(cell), f"**{name}**")

    def _cell_params(self, cell: Cell) -> dict[str, Any]:
        params = {
            "estimator.name": cell.method.estimator[0],
            "dataset.name": cell.setting.dataset[0],
            "backbone.name": cell.setting.backbone[0],
            "selection": str(self.study.selection),
        }
        if cell.setting.generator is not None:
            name, values = cell.setting.generator
            params |= {"generator.name": name, **{f"generator.{key}": value for key, value in values.items()}}
        return params

    def _ensure(
        self, key: str, name: str, parent: str | None, params: Mapping[str, Any], note: str, **tags: str
    ) -> str:
        """Return the run of a key, made if there is none."""
        if key in self._runs:
            return self._runs[key][0]
        about = {"mlflow.source.name": "wsl study", "mlflow.source.type": "LOCAL", "mlflow.note.content": note}
        about |= {**environment.tags(), KEY: key, STUDY: self.study.name, SELECTION: str(self.study.selection), **tags}
        if parent:
            about["mlflow.parentRunId"] = parent
        run_id: str = self.client.create_run(self.tracker.experiment_id, tags=about, run_name=name).info.run_id
        self.client.update_run(run_id, status=OPEN)
        self._runs[key] = (run_id, OPEN)
        self._log_params(run_id, params)
        return run_id

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        entities = import_mlflow().entities
        self.client.log_batch(run_id, params=[entities.Param(key, str(value)[:6000]) for key, value in params.items()])

    def _log_metrics(self, run_id: str, history: Mapping[str, list[float]], at: int, first_step: int = 1) -> None:
        metric = import_mlflow().entities.Metric
        flat = [metric(k, v, at, step) for k, values in history.items() for step, v in enumerate(values, first_step)]
        for start in range(0, len(flat), BATCH):
            self.client.log_batch(run_id, metrics=flat[start : start + BATCH])

    def deliver(self, cell: Cell, point: dict[str, Any], result: JobResult) -> None:
        """See to it that a job's run is in the store, complete, once."""
        key = f"job:{result.job.id}"
        if self._runs.get(key, ("", OPEN))[1] != OPEN:
            return
        with_point = f" | {describe_point(point)}" if point else ""
        fold = f" | fold {result.job.fold + 1}/{result.job.folds}" if result.job.folds > 1 else ""
        name = f"{result.job.purpose} | seed {result.job.seed}{with_point}{fold}{self._oracle}"

        def send() -> None:
            config = result.job.run_config()
            note = f"**{cell.label}**\n\n{name}\n\n{result.message}"
            tags = {"wsl.purpose": result.job.purpose, "wsl.candidates": result.candidates_hash}
            run_id = self._ensure(key, name, self.cell_run(cell), config.flat(), note, **tags)
            self._log_params(run_id, config.flat())
            self._log_metrics(run_id, result.history, result.ended_at)
            self._log_metrics(run_id, {"candidates/mean_size": [result.mean_size]}, result.ended_at)
            status = "FAILED" if result.status == DIVERGED else "FINISHED"
            self.client.set_terminated(run_id, status, end_time=result.ended_at)
            self._runs[key] = (run_id, status)

        self._try(send)

    def finish_cell(self, state: CellState) -> None:
        """Put means, standard errors and the chosen point on a complete cell's run."""
        key = f"cell:{state.cell.label}"
        if not state.done or self._runs.get(key, ("", OPEN))[1] != OPEN:
            return
        at = max(result.ended_at for result in state.results if result is not None)

        def send() -> None:
            run_id = self.cell_run(state.cell)
            self._log_metrics(run_id, {name: [value] for name, value in summary_metrics(state.finished).items()}, at)
            params = self._cell_params(state.cell)
            if len(state.points) == 1:
                params |= {f"selected.{key}": value for key, value in state.points[0].items()}
            self._log_params(run_id, params)
            self.client.set_terminated(run_id, "FINISHED", end_time=at)
            self._runs[key] = (run_id, "FINISHED")

        self._try(send)

    def last_attempt(self) -> bool:
        """Return whether the store lacks something and answers, now that nothing is left to be trained."""
        self._all_trained = True
        if not self._behind:
            return False
        try:
            self.tracker.check_answers()
        except TrackingError:
            return False
        self.tracker.line.worked()
        self._behind = False
        return True

    def finish_study(self, files: Path | None, *, complete: bool) -> None:
        """Store the reports with the study's run, and close it if everything is done and delivered."""

        def send() -> None:
            if self._failures:
                self._read()  # a slow store may have made a run long after it was given up
            run_id = self.study_run()
            if self._runs["study"][1] == DELETED:
                return
            if files is not None:
                self.client.log_artifacts(run_id, str(files), "report")
            self.client.update_run(run_id, status="FINISHED" if complete and not self._behind else OPEN)

        self._try(send)
        if self._failures and not self._behind:
            self._note("the tracking store answered again, and has everything now")

    def _try(self, send: Callable[[], object]) -> None:
        """Send, unless the store did not answer a short while ago; what it lacks is sent when it is back, or later."""
        if not self.tracker.line.is_open:
            self._behind = True
            return
        start = time.monotonic()
        try:
            if self._in_doubt:
                self._read()
            send()
        except Exception as error:
            self._behind = self._in_doubt = True
            self.tracker.line.failed()
            self._failures += 1
            if self._failures == 1:
                self._note(
                    f"the tracking store {redact(self.tracker.uri)} did not take a record ({redact(one_line(error))}): "
                    f"results are safe on disk; it is asked again later, and `wsl study resume {self.study.name}` "
                    "delivers whatever is left"
                )
            return
        self.tracker.line.worked()
        took = time.monotonic() - start
        if took > SLOW_SECONDS and not self._all_trained:
            self.tracker.line.rest(took / SHARE_OF_TIME)


def summary_metrics(results: tuple[JobResult, ...]) -> dict[str, float]:
    """Return mean and standard error of the last epoch's metrics over trials."""
    found: dict[str, float] = {}
    if not results:
        return found
    for name in results[0].final:
        values = [result.final[name] for result in results if name in result.final]
        found[f"{name}_mean"] = statistics.fmean(values)
        if len(values) > 1:
            found[f"{name}_stderr"] = statistics.stdev(values) / len(values) ** 0.5
    return found
