"""The one way to train: jobs in, trained models out; stacked, one by one, or spread over ranks.

`wsl run`, the grid of `wsl fit`, a study's worker, scikit-learn and the Python API all call `train`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import attrs
import torch
from torch import nn

from wsl_toolkit.components import Backbone, Estimator
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.networks import plain
from wsl_toolkit.system.memory import free_memory
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.checkpoints import Place
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.distributed.checkpoints import SharedCheckpoints
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.stacking import Stack, group, models_that_fit, why_it_does_not_pay, why_not
from wsl_toolkit.training.stopping import BestEpoch
from wsl_toolkit.training.trainer import Outcome, Trainer
from wsl_toolkit.training.trial_checkpoints import Past, TrialCheckpoints


@attrs.frozen(kw_only=True, eq=False)
class TrialOutcome:
    """A trained seed, as far as the record on disk tells it."""

    seed: int
    records: tuple[EpochRecord, ...]
    candidates_hash: str
    mean_size: float
    seconds: float
    best_epoch: int | None = None
    """The epoch whose model was kept, where that is not the last one."""

    @property
    def final(self) -> dict[str, float]:
        """The metrics of the epoch whose model was kept; none if not a single epoch was completed."""
        if not self.records:
            return {}
        return self.records[-1 if self.best_epoch is None else self.best_epoch - 1].metrics


@attrs.frozen(kw_only=True, eq=False)
class Trained(TrialOutcome):
    """A model that has just been trained."""

    model: nn.Module
    stacked: int = 1
    """How many models were trained as one with it."""
    error: DivergedError | None = None
    """Why it did not come to its end: its loss became NaN or infinite."""
    ended_by: str = ""
    """Who ended it before its last epoch: 'patience', 'callback', or nobody."""


class Callback:
    """Hears of one model's training; override what you want to hear."""

    def on_train_start(self, problem: Problem, checkpoints: TrialCheckpoints) -> None:
        """The problem is there, and training is about to begin, or to go on from a checkpoint."""

    def on_epoch_end(self, record: EpochRecord) -> bool | None:
        """An epoch ended and was measured; return True to end this training here."""

    def on_train_end(self, trained: Trained) -> None:
        """Training is complete; not called where it was interrupted."""


@attrs.frozen(kw_only=True, eq=False)
class TrainingJob:
    """One model to train."""

    problem: Problem | Callable[[], Problem]
    """What to learn from; a function is called when its turn comes, so that not all problems are in memory at once."""
    estimator: Estimator
    backbone: Backbone
    training: Training
    seed: int
    checkpoints: Callable[[Problem], TrialCheckpoints] = attrs.field(default=lambda problem: TrialCheckpoints())
    """Where its state is saved, once the problem, on which its identity depends, is known."""
    callback: Callback = attrs.field(factory=Callback)

    def load(self) -> Problem:
        """Return the problem."""
        return self.problem if isinstance(self.problem, Problem) else self.problem()


def train(
    jobs: Sequence[TrainingJob],
    *,
    stop: StopRequest | None = None,
    ranks: Ranks | None = None,
    note: Callable[[str], None] = lambda text: None,
    share: int = 1,
    keep_diverged: bool = False,
) -> list[Trained]:
    """Train every job, and return the models in the jobs' order.

    Jobs that differ in nothing but seed, learning rate, weight decay or parameters of the estimator are trained as one
    stack where that is possible and pays; each has the trajectory that it would have alone, up to rounding. Every job
    goes on from its newest checkpoint and leaves new ones, stops early and keeps its best epoch if its training says
    so. A request to `stop` is granted between two batches, after a last checkpoint. With `ranks`, all of them must
    call this; rank 0 alone has metrics beyond the risk. `share` is how many processes share this machine's memory.
    A model that diverges raises, or with `keep_diverged` is returned with its error. Torch's global random state is
    left as it was.
    """
    stop = stop or StopRequest()
    trained: dict[int, Trained] = {}
    for team in _teams(jobs, ranks, note, share):
        with team.restored():
            while (unit := team.unit()) is not None and not stop():
                outcomes = unit.train_epoch(stop)
                if outcomes is not None:
                    team.take(outcomes, keep_diverged)
            team.end(stop)
        trained |= {id(member.job): member.trained() for member in team.members}
    return [trained[id(job)] for job in jobs]


@attrs.define(eq=False)
class _Member:
    """A job at work: its trainer, its records so far, and whether it has ended."""

    job: TrainingJob
    problem: Problem
    checkpoints: TrialCheckpoints
    trainer: Trainer
    best: BestEpoch | None
    records: list[EpochRecord] = attrs.field(factory=list)
    seconds: float = 0.0
    error: DivergedError | None = None
    ended_by: str = ""
    _trained: Trained | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to train."""
        ended = self.error is not None or bool(self.ended_by)
        return ended or self.trainer.epoch >= self.job.training.epochs

    def take(self, outcome: Outcome) -> None:
        """Take what an epoch came to; end the training if it diverged, waited long enough, or a callback says so."""
        if isinstance(outcome, DivergedError):
            self.error = outcome
            return
        self.records.append(outcome)
        if self.best is not None:
            self.best.see(outcome, self.trainer.model)
        if self.job.callback.on_epoch_end(outcome):
            self.ended_by = "callback"
        elif self.best is not None and self.best.is_exhausted(outcome.epoch):
            self.ended_by = "patience"

    def save(self, *, finished: bool = False) -> None:
        """Write a checkpoint."""
        self.checkpoints.save(self.trainer, self.records, self.seconds, self.best, finished=finished)

    def end(self) -> None:
        """Keep the model that is to be kept, and tell the callback."""
        best_epoch = None
        if self.best is not None and self.best.keeps_model and self.error is None:
            self.best.restore_model(self.trainer.model)
            best_epoch = self.best.epoch
        self._trained = Trained(
            seed=self.job.seed,
            records=tuple(self.records),
            candidates_hash=self.problem.train_candidates.content_hash,
            mean_size=self.problem.train_candidates.mean_size,
            seconds=self.seconds,
            best_epoch=best_epoch,
            model=plain(self.trainer.model).eval(),
            stacked=self.trainer.stacked,
            error=self.error,
            ended_by=self.ended_by,
        )
        self.job.callback.on_train_end(self._trained)

    def trained(self) -> Trained:
        """Return the result of a training that has ended."""
        assert self._trained is not None
        return self._trained


class _Team:
    """Members that take every epoch together: as one stack, or a single one alone."""

    def __init__(self, members: list[_Member], ranks: Ranks | None = None) -> None:
        self.members = members
        self.ranks = ranks
        self._active: list[_Member] = []
        self._unit: Trainer | Stack | None = None
        self._mark = time.perf_counter()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Bring the members to their checkpoints; inside, as many threads are used as when those were made."""
        with torch.random.fork_rng(devices=[]), self.members[0].checkpoints.same_threads():
            for member in self.members:
                past = member.checkpoints.restore(member.trainer, member.best)
                member.records, member.seconds = list(past.records), past.seconds
                if member.best is not None and member.best.epoch and member.best.is_exhausted(member.trainer.epoch):
                    member.ended_by = "patience"
            self._mark = time.perf_counter()
            yield

    def unit(self) -> Trainer | Stack | None:
        """Return what trains the members that are not done; None if all are."""
        active = [member for member in self.members if not member.is_done]
        if not active:
            return None
        if self._unit is None or len(active) != len(self._active):
            first = self._unit is None
            trainers = [member.trainer for member in active]
            if len(trainers) == 1 and isinstance(self._unit, Stack):
                trainers[0].own_tensors()
            self._unit = Stack(trainers) if len(trainers) > 1 else trainers[0]
            self._active = active
            if first:
                for member in active:
                    member.checkpoints.compare_execution(member.trainer)
        return self._unit

    def take(self, outcomes: Sequence[Outcome], keep_diverged: bool) -> None:
        """Give each member its outcome; save all of them if a checkpoint is due."""
        self._count_seconds()
        for member, outcome in zip(self._active, outcomes, strict=True):
            member.take(outcome)
            if member.error is not None and not keep_diverged:
                raise member.error
            if self.ranks is not None and member.job.training.patience:  # of which rank 0 alone knows
                member.ended_by = self.ranks.tell(member.ended_by)
        # All or none: models of a stack go on from the same epoch.
        going_on = [member for member in self._active if not member.is_done]
        if going_on and going_on[0].checkpoints.is_due(going_on[0].trainer):
            for member in going_on:
                member.save()
        for member in self._active:
            if member.is_done:
                self._finish(member)

    def end(self, stop: StopRequest) -> None:
        """Save those that were interrupted, and grant the request to stop."""
        self._count_seconds()
        interrupted = [member for member in self.members if not member.is_done]
        for member in interrupted:
            member.save()
        if interrupted:
            trainer = interrupted[0].trainer
            place = Place(epoch=trainer.epoch, step=trainer.step)
            stop.grant(f" at {place} of {interrupted[0].job.training.epochs}")
        for member in self.members:
            if member._trained is None:  # it was complete when its checkpoint was made
                self._finish(member)

    def _finish(self, member: _Member) -> None:
        if member.error is None:
            member.save(finished=True)
        member.end()

    def _count_seconds(self) -> None:
        """Share the time since the last call among those that were trained."""
        now = time.perf_counter()
        for member in self._active:
            member.seconds += (now - self._mark) / len(self._active)
        self._mark = now


def _teams(
    jobs: Sequence[TrainingJob], ranks: Ranks | None, note: Callable[[str], None], share: int
) -> Iterator[_Team]:
    """Yield teams one after the other; problems are loaded when their team's turn comes."""
    for cohort in _cohorts(jobs):
        loaded = _Problems()
        room = 1 if ranks is not None or len(cohort) < 2 else _room(cohort, loaded, note, share)
        for start in range(0, len(cohort), room):
            part = cohort[start : start + room]
            with torch.random.fork_rng(devices=[]):
                members = [_begin(job, loaded.take(job), ranks) for job in part]
            yield from _grouped(members, ranks)


def _cohorts(jobs: Sequence[TrainingJob]) -> list[list[TrainingJob]]:
    """Put jobs together that may be one stack: those that differ in seed, rates and the estimator's parameters only."""
    found: dict[str, list[TrainingJob]] = {}
    for job in jobs:
        same = attrs.evolve(job.training, seed=0, trials=1, lr=1.0, weight_decay=0.0)
        found.setdefault(repr((type(job.estimator), job.backbone, same)), []).append(job)
    return list(found.values())


class _Problems:
    """Problems that were loaded to find out how their jobs are trained best, until they are asked for."""

    def __init__(self) -> None:
        self._kept: dict[int, Problem] = {}

    def look(self, job: TrainingJob) -> Problem:
        """Return a job's problem, and keep it."""
        return self._kept.setdefault(id(job), self._kept.get(id(job)) or job.load())

    def take(self, job: TrainingJob) -> Problem:
        """Return a job's problem, and forget it."""
        return self._kept.pop(id(job), None) or job.load()


def _room(cohort: list[TrainingJob], problems: _Problems, note: Callable[[str], None], share: int) -> int:
    """Return how many of the jobs are trained at once: one, if a stack is impossible or does not pay."""
    first, last = cohort[0], cohort[-1]
    if reason := why_never_stacked(first):
        note(f"{len(cohort)} models train one by one: {reason}")
        return 1
    pair = _pair(cohort, problems)
    if reason := why_it_does_not_pay(pair) or why_not(pair):
        note(f"{len(cohort)} models train one by one: {reason}")
        return 1
    room = models_that_fit(pair[0]) // share
    if not pair[0].inputs.same_as(pair[1].inputs):
        each = inputs_bytes([problems.look(last)])
        room = min(room, free_memory() // 2 // share // max(1, each))
    return max(1, room)


def _pair(cohort: Sequence[TrainingJob], problems: _Problems) -> list[Trainer]:
    """Return trainers of the first and the last job, to find out whether the cohort can be a stack."""
    with torch.random.fork_rng(devices=[]):
        return [
            make_trainer(problems.look(job), job.estimator, job.backbone, job.training, job.seed)
            for job in (cohort[0], cohort[-1])
        ]


def why_never_stacked(job: TrainingJob) -> str | None:
    """Return why a job is never part of a stack, as far as it is known before its problem is loaded."""
    if not job.estimator.stackable:
        return f"estimator {job.estimator.name} declares that it cannot be stacked"
    if beyond := job.estimator.needs_that_do_not("stacks"):
        return f"estimator {job.estimator.name} needs {', '.join(beyond)}"
    if job.training.optimizer != "sgd":
        return "only sgd steps many models at once"
    return None


def why_one_by_one(jobs: Sequence[TrainingJob]) -> str | None:
    """Return why `train` would not stack these jobs, or None if it would."""
    if len(jobs) < 2 or len(_cohorts(jobs)) > 1:
        return "there is nothing to stack it with"
    if reason := why_never_stacked(jobs[0]):
        return reason
    pair = _pair(jobs, _Problems())
    return why_it_does_not_pay(pair) or why_not(pair)


def inputs_bytes(problems: Iterable[Problem]) -> int:
    """Return the memory that problems' inputs take; what several share counts once."""
    parts = {id(part): part for each in problems for part in (each.train_x, each.validation_x, each.test_x)}
    return sum(part.nbytes for part in parts.values())


def _begin(job: TrainingJob, problem: Problem, ranks: Ranks | None) -> _Member:
    """Build a job's trainer, and say that its training begins."""
    checkpoints = job.checkpoints(problem)
    job.callback.on_train_start(problem, checkpoints)
    if ranks is not None:
        checkpoints = SharedCheckpoints(ranks, checkpoints)
    with checkpoints.same_threads():  # on which the plan of execution depends
        trainer = make_trainer(problem, job.estimator, job.backbone, job.training, job.seed, ranks)
    best = BestEpoch.of(job.training) if ranks is None or ranks.leads else None
    return _Member(job=job, problem=problem, checkpoints=checkpoints, trainer=trainer, best=best)


def _grouped(members: list[_Member], ranks: Ranks | None) -> Iterator[_Team]:
    """Yield teams whose members stand at the same place and are stacked best together."""
    if len(members) == 1:
        yield _Team(members, ranks)
        return
    _meet(members)
    by_place: dict[Place | None, list[_Member]] = {}
    for member in members:
        by_place.setdefault(member.checkpoints.place, []).append(member)
    for together in by_place.values():
        for found in group([member.trainer for member in together]):
            yield _Team([together[place] for place in found.places])


def _meet(members: list[_Member]) -> None:
    """Let members that were saved one after the other go back to the newest place where all of them were saved."""
    places = [m.checkpoints.files.places() if m.checkpoints.files else set() for m in members]
    common = set.intersection(*places)
    if common and len({member.checkpoints.place for member in members}) > 1:
        place = max(common, key=lambda each: (each.epoch, each.step))
        for member in members:
            member.checkpoints.go_back(place)


__all__ = ["Callback", "Past", "Trained", "TrainingJob", "TrialOutcome", "train"]
