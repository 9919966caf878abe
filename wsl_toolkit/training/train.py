"""The one way to train: jobs in, trained models out; stacked, one by one, or spread over ranks.

`wsl run`, the grid of `wsl fit`, a study's worker, scikit-learn and the Python API all call `train`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import torch

from wsl_toolkit.data.problem import Problem
from wsl_toolkit.system.kept_choices import KeptChoices
from wsl_toolkit.system.memory import free_memory
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.build import make_trainer, started_from
from wsl_toolkit.training.calibration import using
from wsl_toolkit.training.callbacks import Callbacks
from wsl_toolkit.training.checkpoints import Place
from wsl_toolkit.training.devices import explained
from wsl_toolkit.training.distributed.checkpoints import SharedCheckpoints
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.jobs import JobListener, Trained, TrainingJob, TrialOutcome
from wsl_toolkit.training.residency import how_kept
from wsl_toolkit.training.stacking import group, models_that_fit, why_it_does_not_pay, why_not
from wsl_toolkit.training.stacking.optimiser import ONLY_THESE, STACKED
from wsl_toolkit.training.stopping import BestEpoch
from wsl_toolkit.training.team import Member, Team
from wsl_toolkit.training.trainer import Trainer


def train(
    jobs: Sequence[TrainingJob],
    *,
    stop: StopRequest | None = None,
    ranks: Ranks | None = None,
    note: Callable[[str], None] = lambda text: None,
    share: int = 1,
    keep_diverged: bool = False,
    choices: KeptChoices | None = None,
) -> list[Trained]:
    """Train every job, and return the models in the jobs' order.

    Jobs that differ in nothing but seed, learning rate, weight decay or parameters of the estimator are trained as one
    stack where that is possible and pays; each has the trajectory that it would have alone, up to rounding. Every job
    goes on from its newest checkpoint and leaves new ones, stops early and keeps its best epoch if its training says
    so, and calls its callbacks. A request to `stop` is granted between two batches, after a last checkpoint. With
    `ranks`, all of them must call this; rank 0 alone has metrics beyond the risk. `share` is how many processes share
    this machine's memory. A model that diverges raises, or with `keep_diverged` is returned with its error. Threads and
    chunks that are measured for a plan are kept in `choices`, or else in this process's memory. Torch's global random
    state is left as it was.
    """
    stop = stop or StopRequest()
    trained: dict[int, Trained] = {}
    with using(choices):
        for team in _teams(jobs, ranks, note, share):
            with team.restored(), explained():
                while (unit := team.unit()) is not None and not team.is_stopped(stop):
                    outcomes = unit.train_epoch(stop)
                    if outcomes is not None:
                        team.take(outcomes, keep_diverged)
                team.end(stop)
            trained |= {id(member.job): member.trained() for member in team.members}
    return [trained[id(job)] for job in jobs]


def _teams(jobs: Sequence[TrainingJob], ranks: Ranks | None, note: Callable[[str], None], share: int) -> Iterator[Team]:
    """Yield teams one after the other; problems are loaded when their team's turn comes."""
    said: set[str] = set()
    for cohort in _cohorts(jobs):
        loaded = _Problems()
        room = 1 if ranks is not None or len(cohort) < 2 else _room(cohort, loaded, note, share)
        for start in range(0, len(cohort), room):
            part = cohort[start : start + room]
            with torch.random.fork_rng(devices=[]):
                members = [_begin(job, loaded.take(job), ranks) for job in part]
            for member in members:
                for text in (*started_from(member.trainer.model), how_kept(member.trainer.inputs)):
                    if text and text not in said:
                        note(text)
                    said.add(text)
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
    if job.training.augmentation != "none" and not job.estimator.has_views():
        return "each sees augmented copies of its own"
    if job.training.optimizer not in STACKED:
        return ONLY_THESE
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


def _begin(job: TrainingJob, problem: Problem, ranks: Ranks | None) -> Member:
    """Build a job's trainer, and say that its training begins."""
    checkpoints = job.checkpoints(problem)
    job.listener.on_train_start(problem, checkpoints)
    if ranks is not None:
        checkpoints = SharedCheckpoints(ranks, checkpoints)
    with checkpoints.same_threads():  # on which the plan of execution depends
        trainer = make_trainer(
            problem, job.estimator, job.backbone, job.training, job.seed, ranks, checkpoints.recorded
        )
    best = BestEpoch.of(job.training) if ranks is None or ranks.leads else None
    callbacks = Callbacks(job.callbacks if ranks is None or ranks.leads else ())
    return Member(job=job, problem=problem, checkpoints=checkpoints, trainer=trainer, best=best, callbacks=callbacks)


def _grouped(members: list[Member], ranks: Ranks | None) -> Iterator[Team]:
    """Yield teams whose members stand at the same place and are stacked best together."""
    if len(members) == 1:
        yield Team(members, ranks)
        return
    _meet(members)
    by_place: dict[Place | None, list[Member]] = {}
    for member in members:
        by_place.setdefault(member.checkpoints.place, []).append(member)
    for together in by_place.values():
        for found in group([member.trainer for member in together]):
            yield Team([together[place] for place in found.places])


def _meet(members: list[Member]) -> None:
    """Let members that were saved one after the other go back to the newest place where all of them were saved.

    If there is none, that is the beginning: apart from each other they would not have the bits of their stack.
    """
    places = [m.checkpoints.files.places() if m.checkpoints.files else set() for m in members]
    common = set.intersection(*places)
    if len({member.checkpoints.place for member in members}) > 1:
        place = max(common, key=lambda each: (each.epoch, each.step), default=None)
        for member in members:
            member.checkpoints.go_back(place)


__all__ = ["JobListener", "Trained", "TrainingJob", "TrialOutcome", "train"]
