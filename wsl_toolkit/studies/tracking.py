"""A study in MLflow: one experiment; a run for the study, below it one for each cell, below that one for each job.

Entries are built from results and cells, and an `Outbox` delivers them. Parents are SCHEDULED until complete: a study
that was killed never says RUNNING. A store that goes away is asked again later, first what it has; a slow one is sent
to only for a small share of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wsl_toolkit.errors import TrackingError, one_line
from wsl_toolkit.parameters import values_of
from wsl_toolkit.plugins.code_identity import provenance
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs.tracking.outbox import DELETED, OPEN, DeletedRunError, Entry, Outbox, Value
from wsl_toolkit.runs.tracking.runs_table import CELL, KEY, TRIALS, table_numbers, table_tags
from wsl_toolkit.runs.tracking.store import Tracker, redact
from wsl_toolkit.studies.cell_records import description_digest
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Cell, Study
from wsl_toolkit.studies.jobs import DIVERGED, JobResult
from wsl_toolkit.studies.store import describe_point
from wsl_toolkit.system import environment
from wsl_toolkit.system.statistics import summarise

STUDY = "wsl.study"
SELECTION = "wsl.selection"
DESCRIBED = "wsl.description"
"""What a cell's run shows: digests of its description (trials, settings, search, selection) and of the code."""
PARENT, NAME = "mlflow.parentRunId", "mlflow.runName"

SLOW_SECONDS, SHARE_OF_TIME = 2.0, 0.05
"""A store that takes longer than this for one job gets no more than this share of the time while others are trained."""
ROWS_SECONDS = 10.0
"""For so long a study that begins makes rows for its cells; each that is left comes with its first result."""


def experiment_name(study: str) -> str:
    """Return the experiment of a study."""
    return f"wsl-study-{study}"


class StudyOutbox:
    """Delivers a study; a store that goes away stops nothing and gets the rest later."""

    def __init__(
        self,
        tracker: Tracker,
        study: Study,
        note: Callable[[str], None],
        *,
        codes: Mapping[str, str] | None = None,
        since: int = 0,
    ) -> None:
        self.tracker = tracker
        self.study = study
        self.codes = codes or {}
        """By the labels of cells: short names of the code behind their results."""
        self.since = since
        """Since when results count, where they were made anew."""
        self.client = tracker.client
        self.outbox = Outbox(tracker, KEY, scope=f"tags.`{STUDY}` = '{study.name}'")
        self._note = note
        self._behind = False
        """Whether the store lacks something that was to be sent."""
        self._failures = 0
        self._all_trained = False
        self._renewed: set[str] = set()
        """Labels of the cells whose description is another one than the store knew."""
        try:
            self.outbox.read()
        except Exception as error:
            raise TrackingError(
                f"the tracking store {redact(tracker.uri)} cannot be read: {redact(one_line(error))}"
            ) from None

    @property
    def delivered(self) -> int:
        """How many jobs are complete in the store."""
        return sum(key.startswith("job:") and self._is_closed(key) for key in self.outbox.runs)

    def _is_closed(self, key: str) -> bool:
        return self.outbox.runs.get(key, ("", OPEN))[1] not in (OPEN, "RUNNING")

    # --------------------------------------------------------------- entries

    def _entry(self, key: str, name: str, note: str = "", **more: Any) -> Entry:
        own = {**environment.tags(), STUDY: self.study.name, SELECTION: str(self.study.selection)}
        tags = {**own, **more.pop("tags", {})}
        name = f"{name}{' | ORACLE selection' if self.study.selection.is_oracle else ''}"
        description = note or f"**{name}**"
        return Entry(
            key=key, name=name, description=description, tags=tags, source="wsl study", **{"status": OPEN, **more}
        )

    def _study_entry(self, **more: Any) -> Entry:
        about = f"**{self.study.title or self.study.name}**\n\nSelected by {self.study.selection}."
        return self._entry("study", self.study.name, about, **more)

    def _cell_entry(self, cell: Cell, state: CellState | None = None) -> Entry:
        """Return a cell's entry with the numbers so far; of a complete one with all means and the chosen point."""
        chosen = _components(cell)
        params = {f"{role}.name": name for role, (name, _) in chosen.items()} | {"selection": str(self.study.selection)}
        params |= {f"generator.{key}": value for key, value in chosen.get("generator", ("", {}))[1].items()}
        more: dict[str, Any] = {"parent": self.outbox.run_of(self._study_entry())}
        if state is not None:
            results = [result for result in state.results if result is not None]
            at = max((result.ended_at for result in results), default=int(time.time() * 1000))
            row = table_numbers([result.final for result in state.finished]) or {TRIALS: 0.0}
            metrics = [Value(name, value, at, len(results)) for name, value in row.items()]
            if state.done:
                metrics += [Value(name, value, at, 1) for name, value in summary_metrics(state.finished).items()]
                more |= {"status": "FINISHED", "ended": at}
                if len(state.points) == 1:
                    params |= {f"selected.{key}": value for key, value in state.points[0].items()}
            more["metrics"] = metrics
        tags = {DESCRIBED: self._described(cell), **table_tags(chosen)}
        return self._entry(f"{CELL}{cell.label}", cell.label, params=params, tags=tags, **more)

    def _job_entry(self, cell: Cell, point: Mapping[str, Any], result: JobResult) -> Entry:
        job, at = result.job, result.ended_at
        with_point = f" | {describe_point(dict(point))}" if point else ""
        fold = f" | fold {job.fold + 1}/{job.folds}" if job.folds > 1 else ""
        name = f"{job.purpose} | seed {job.seed}{with_point}{fold}"
        history = {**result.history, "candidates/mean_size": [result.mean_size]}
        values = [Value(k, v, at, step) for k, values in history.items() for step, v in enumerate(values, start=1)]
        config = job.run_config()
        return self._entry(
            self.key(result),
            name,
            f"**{cell.label}**\n\n{name}\n\n{result.message}",
            parent=self.outbox.run_of(self._cell_entry(cell)),
            params=config.flat(),
            tags={
                "wsl.purpose": job.purpose,
                "wsl.candidates": result.candidates_hash,
                **provenance(result.code),
                **table_tags(config.components),
            },
            metrics=[*values, *(Value(k, v, at, 1) for k, v in table_numbers([result.final]).items())],
            status="FAILED" if result.status == DIVERGED else "FINISHED",
            ended=at,
        )

    def key(self, result: JobResult) -> str:
        """Return what a job's run is known by: each code's result has a run of its own."""
        parts = (result.job.id, result.made_by, f"{self.since or ''}")
        return f"job:{'.'.join(filter(None, parts))}"

    def _described(self, cell: Cell) -> str:
        parts = (description_digest(cell), self.codes.get(cell.label, ""), f"{self.since or ''}")
        return " ".join(filter(None, parts))

    # -------------------------------------------------------------- delivery

    def begin(self) -> None:
        """See to it that the study has its run before any worker starts; cells are to show what is there now."""
        self._try(lambda: self.outbox.run_of(self._study_entry()))
        for cell in self.study.cells():
            self._try(lambda cell=cell: self._set_aside(cell))  # type: ignore[misc]
        start = time.monotonic()
        for cell in self.study.cells():
            if time.monotonic() - start < ROWS_SECONDS:
                self._try(lambda cell=cell: self.outbox.run_of(self._cell_entry(cell)))  # type: ignore[misc]

    def _set_aside(self, cell: Cell) -> None:
        """Keep a cell's run of an earlier description or code apart: numbers of two would be mixed in one."""
        key = f"{CELL}{cell.label}"
        run_id, status = self.outbox.runs.get(key, ("", DELETED))
        if status == DELETED:
            return
        run, present = self.client.get_run(run_id), self._described(cell)
        before = run.data.tags.get(DESCRIBED)
        if before is None and not self.codes.get(cell.label):  # results of release 0.1, which said neither
            self.client.set_tag(run_id, DESCRIBED, present)
        elif before != present:
            other = "code" if before is None or before.split()[0] == present.split()[0] else "description"
            self.client.set_tag(run_id, KEY, f"earlier {key} {before}")
            self.client.set_tag(run_id, NAME, f"{run.info.run_name} (earlier {other})")
            del self.outbox.runs[key]
            self._renewed.add(cell.label)

    def deliver(self, cell: Cell, point: dict[str, Any], result: JobResult) -> None:
        """See to it that a job's run is in the store, complete, once, below its cell's present run."""
        key = self.key(result)
        if cell.label in self._renewed and self.outbox.runs.get(key, ("", DELETED))[1] != DELETED:
            self._try(lambda: self._move(key, cell))
        if not self._is_closed(key):
            self._try(lambda: self.outbox.deliver(self._job_entry(cell, point, result)))

    def _move(self, key: str, cell: Cell) -> None:
        """Put a job's run, which an earlier description had too, below the cell's present run."""
        self.client.set_tag(self.outbox.runs[key][0], PARENT, self.outbox.run_of(self._cell_entry(cell)))

    def update_cell(self, state: CellState) -> None:
        """Put the numbers so far on a cell's run; a complete one gets all means and is closed."""
        begun = any(search.scored for search in state.searches) or any(state.results)
        if begun and not self._is_closed(f"{CELL}{state.cell.label}"):
            self._try(lambda: self.outbox.deliver(self._cell_entry(state.cell, state)))

    def last_attempt(self) -> bool:
        """Return whether the store lacks something and answers, now that nothing is left to be trained."""
        self._all_trained = True
        if not self._behind:
            return False
        try:
            self.tracker.check_answers()
        except TrackingError:
            return False
        self.tracker.backoff.worked()
        self._behind = False
        return True

    def finish_study(self, files: Path | None, *, complete: bool) -> None:
        """Store the reports with the study's run, and close it if everything is done and delivered."""
        paths = sorted(path for path in files.rglob("*") if path.is_file()) if files is not None else []
        found = [(path, str(Path("report") / path.parent.relative_to(files or path))) for path in paths]

        def send() -> None:
            if self._failures:
                self.outbox.read()  # a slow store may have made a run long after it was given up
            status = "FINISHED" if complete and not self._behind else OPEN
            self.outbox.deliver(self._study_entry(files=found, status=status))

        self._try(send)
        if self._failures and not self._behind:
            self._note("the tracking store answered again, and has everything now")

    def _try(self, send: Callable[[], object]) -> None:
        """Send, unless the store did not answer a short while ago; what it lacks is sent when it is back, or later."""
        if not self.tracker.backoff.is_open:
            self._behind = True
            return
        start = time.monotonic()
        try:
            send()
        except DeletedRunError:
            pass  # the user's decision
        except Exception as error:
            self._behind = True
            self.tracker.backoff.failed()
            self._failures += 1
            if self._failures == 1:
                self._note(
                    f"the tracking store {redact(self.tracker.uri)} did not take a record ({redact(one_line(error))}): "
                    f"results are safe on disk; it is asked again later, and `wsl study resume {self.study.name}` "
                    "delivers whatever is left"
                )
            return
        self.tracker.backoff.worked()
        took = time.monotonic() - start
        if took > SLOW_SECONDS and not self._all_trained:
            self.tracker.backoff.rest(took / SHARE_OF_TIME)


def summary_metrics(results: tuple[JobResult, ...]) -> dict[str, float]:
    """Return mean and standard error of the last epoch's metrics over trials."""
    return summarise([result.final for result in results])


def _components(cell: Cell) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a cell's components; of an installed generator with every parameter, given or not."""
    setting, registry = cell.setting, load_plugins().registry
    found = {"estimator": cell.method.estimator, "dataset": setting.dataset, "backbone": setting.backbone}
    if setting.generator is not None:
        name, values = setting.generator
        is_known = name in registry.names("generator")
        found["generator"] = (name, values_of(registry.create("generator", name, values)) if is_known else values)
    return {role: (name, dict(values)) for role, (name, values) in found.items()}
