"""One trial of a run while it is trained: its folder, its record in the store, its figures and its model."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import DataError
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.runs import summary, trial_figures
from wsl_toolkit.runs.folder import RunFolder, same_metrics
from wsl_toolkit.runs.session import Parts, Session
from wsl_toolkit.runs.tracking.runs_table import table_numbers
from wsl_toolkit.runs.tracking.store import CANDIDATES_FILE
from wsl_toolkit.runs.tracking.tracked_run import TrackedRun
from wsl_toolkit.system.figure_style import png
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.config import RunConfig
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.train import JobListener, Trained, TrainingJob, TrialOutcome
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

MAX_LOGGED_CANDIDATES = 64 * 2**20
"""Candidate sets larger than this are tracked by their hash alone."""

CANDIDATES_INPUT = "candidate-sets"


class TrackedTrial(JobListener):
    """Writes a trial's epochs and its end to its folder and to the store, which a trial of several opens for itself."""

    def __init__(self, session: Session, config: RunConfig, *, number: int, of: int) -> None:
        self.session = session
        self.config = config
        self.number = number
        self.of = of
        self.tracked: TrackedRun | None = None
        self._open: Callable[[], AbstractContextManager[TrackedRun]] | None = None
        self._own = ExitStack()
        self._known: dict[int, EpochRecord] = {}
        self._problem: Problem | None = None

    @property
    def seed(self) -> int:
        """The trial's seed."""
        return self.config.training.seed

    def opens(self, outer: ExitStack, make: Callable[[], AbstractContextManager[TrackedRun]]) -> None:
        """Have a run of its own, opened when its training begins; closed at its end, or by `outer` if that fails."""
        self._open = make
        outer.push(self._own)

    def job(self) -> TrainingJob:
        """Return what to train."""
        parts = self.session.parts
        return TrainingJob(
            problem=self.load,
            estimator=parts.estimator,
            backbone=parts.backbone,
            training=self.config.training,
            seed=self.seed,
            checkpoints=self.checkpoints,
            listener=self,
            callbacks=[*self.config.create_callbacks(self.session.registry), *self.session.callbacks()],
        )

    def load(self) -> Problem:
        """Return the seed's problem."""
        parts = self.session.parts
        with ExitStack() as guards:
            for component in filter(None, (parts.generator, parts.transform)):
                guards.enter_context(attributed(self.session.registry, component.role, component.name))
            return trial_problem(self.config, parts, self.seed)

    def checkpoints(self, problem: Problem) -> TrialCheckpoints:
        """Open the trial's run, and return where its checkpoints go, bound to what the trial depends on."""
        if self._open is not None:
            self.tracked = self._own.enter_context(self._open())
        self._problem = problem
        tracked = self._run()
        _log_inputs(tracked, self.session, problem)
        held_out = problem.validation_candidates
        identity = {
            "configuration": self.config.identity(),
            "data": self.session.parts.data.digest(),
            "candidate sets": problem.train_candidates.content_hash,
            "held-out candidate sets": held_out.content_hash if held_out is not None else "",
        }
        note = self.session.listener.note
        files = Checkpoints(tracked.folder.path / "checkpoints", every=self.session.checkpoint_every, note=note)
        return TrialCheckpoints(files, identity, note, codes=tracked.folder.fact("codes", []))

    def on_train_start(self, problem: Problem, checkpoints: TrialCheckpoints) -> None:
        """Announce the trial; restore the records of what a checkpoint has behind it."""
        listener, epochs = self.session.listener, self.config.training.epochs
        listener.trial(self.number, self.of, self.seed, epochs)
        past = checkpoints.past
        restored = self._run().folder.restore_records(list(past.records))
        self._known = {timed.record.epoch: timed.record for timed in restored}
        if checkpoints.place is not None:
            listener.note(f"going on from {checkpoints.place} of {epochs}")

    def on_epoch_end(self, record: EpochRecord) -> None:
        """Show and record an epoch; one that was recorded before the interruption is compared."""
        self.session.listener.epoch(record, self.number)
        before = self._known.get(record.epoch)
        _explain(self.session, record, before)
        if before is None:
            self._run().log_epoch(self._run().folder.append(record))

    def on_figure(self, name: str, figure: Any) -> None:
        """Keep a callback's figure."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")  # as its maker set it up
        self._run().log_picture(buffer.getvalue(), f"figures/{name}.png")

    def on_train_end(self, trained: Trained) -> None:
        """Say why it ended; a trial of several is completed, the only one when its result was shown."""
        if trained.ended_by:
            what = f"{trained.ended_by} asked for it"
            if trained.ended_by == "patience":
                what = f"{self.config.training.monitor} did not improve for {self.config.training.patience} epochs"
            self.session.listener.note(f"seed {self.seed} stopped after epoch {len(trained.records)}: {what}")
        self._run().flush()
        if self._open is not None:
            self.complete(trained)

    def complete(self, trained: Trained) -> None:
        """Record figures and the model; a trial of several is closed."""
        tracked, problem = self._run(), self._problem
        assert problem is not None
        title = summary.run_name(self.config, self.session.registry)
        tracked.log_picture(png(summary.curve_figure([trained.records], title)), "figures/learning_curve.png")
        for name, figure in trial_figures.trial_figures(trained.model, problem, trained.records, title):
            tracked.log_picture(png(figure), f"figures/{name}.png")
        tracked.log_model(*summary.deployable(trained.model, problem, self.session.parts.data))
        if self._open is not None:
            tracked.log_summary(table_numbers([trained.final]), len(trained.records))
            tracked.folder.write_result(summary.trial_facts(trained))
            self._own.close()

    def _run(self) -> TrackedRun:
        assert self.tracked is not None
        return self.tracked


def trial_problem(config: RunConfig, parts: Parts, seed: int) -> Problem:
    """Return one seed's problem."""
    wanted = config.training
    return make_problem(
        parts.data,
        parts.generator,
        seed=seed,
        validation=wanted.validation,
        test=wanted.test,
        subset=wanted.subset,
        transform=parts.transform,
    )


def finished_trial(folder: RunFolder, epochs: int) -> TrialOutcome | None:
    """Return the outcome of a trial that is complete on disk; one of whose files is damaged goes on from its end."""
    facts, records = folder.result(), tuple(timed.record for timed in folder.records())
    if facts is None or len(records) != facts.get("epochs", epochs):
        return None
    try:
        return TrialOutcome(
            seed=facts["seed"],
            records=records,
            candidates_hash=facts["candidates"]["hash"],
            mean_size=facts["candidates"]["mean_size"],
            seconds=facts["seconds"],
            best_epoch=facts.get("best_epoch"),
        )
    except (KeyError, TypeError):
        return None


def _log_inputs(tracked: TrackedRun, session: Session, problem: Problem) -> None:
    """Record what the run learns from; a resumed run must learn from the same."""
    data, candidates = session.parts.data, problem.train_candidates
    for name, digest, context in (
        (data.name, data.digest(), "training"),
        (CANDIDATES_INPUT, candidates.content_hash, "labels"),
    ):
        before = {item["context"]: item["digest"] for item in tracked.folder.fact("inputs", [])}.get(context, digest)
        if before != digest:
            what = "the candidate sets" if context == "labels" else f"the data of {name}"
            raise DataError(
                f"{what} changed since run {tracked.run_id} began (digest {digest[:12]}, then {before[:12]}): restore "
                "what was there, or start a new run"
            )
        tracked.log_input(name, digest, context)
    path = tracked.folder.path / CANDIDATES_FILE
    if not path.exists():
        candidates.save(path)
        if candidates.nbytes <= MAX_LOGGED_CANDIDATES:
            tracked.log_file(path)


def _explain(session: Session, record: EpochRecord, before: EpochRecord | None) -> None:
    """Explain once what may surprise: a negative risk, a loss that is NaN, an epoch that differs from its record."""
    risk = record.metrics["train/risk"]
    if risk < 0:
        session.note_once(
            "negative",
            f"the empirical risk is negative ({risk:.4g} at epoch {record.epoch}). That is not a fault of the run: an "
            "unbiased estimate weighs some losses negatively, and a network that fits the sets closely can push it "
            "below zero. Read it as a sign of over-fitting, against which weight decay and fewer epochs help",
        )
    if not math.isfinite(risk):
        session.note_once(
            "nan", f"the loss became {risk} in epoch {record.epoch}; the run goes on because of --on-nan continue"
        )
    if before is not None and not same_metrics(before.metrics, record.metrics):
        session.note_once(
            "differs",
            f"epoch {record.epoch} did not come out as it did before the interruption: the result is the same up to "
            "rounding only (another machine, or a component that is not reproducible)",
        )
