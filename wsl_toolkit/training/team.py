"""Models that take every epoch together: their records, checkpoints, early ends and results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import torch

from wsl_toolkit.data.problem import Problem
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.networks import plain
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.callbacks import Callbacks, TrainingStart
from wsl_toolkit.training.checkpoints import Place
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.jobs import Trained, TrainingJob
from wsl_toolkit.training.stacking import Stack
from wsl_toolkit.training.stopping import BestEpoch
from wsl_toolkit.training.trainer import Outcome, Trainer
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints


@attrs.define(eq=False)
class Member:
    """A job at work: its trainer, its records so far, and whether it has ended."""

    job: TrainingJob
    problem: Problem
    checkpoints: TrialCheckpoints
    trainer: Trainer
    best: BestEpoch | None
    callbacks: Callbacks
    records: list[EpochRecord] = attrs.field(factory=list)
    seconds: float = 0.0
    error: DivergedError | None = None
    ended_by: str = ""
    result: Trained | None = None

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
        record, figures, ended_by = self.callbacks.epoch_end(outcome)
        self.records.append(record)
        if self.best is not None:
            self.best.see(record, self.trainer.model)
        for name, figure in figures.items():
            self.job.listener.on_figure(name, figure)
        if self.job.listener.on_epoch_end(record):
            self.ended_by = "listener"
        elif ended_by:
            self.ended_by = ended_by
        elif self.best is not None and self.best.is_exhausted(outcome.epoch):
            self.ended_by = "patience"

    def save(self, *, finished: bool = False) -> None:
        """Write a checkpoint."""
        more = {"ended_by": self.ended_by, "callbacks": self.callbacks.state_dict()}
        self.checkpoints.save(self.trainer, self.records, self.seconds, self.best, more, finished=finished)

    def restore(self) -> None:
        """Go on from the newest checkpoint, if there is one, and tell the callbacks that training begins."""
        past = self.checkpoints.restore(self.trainer, self.best)
        self.records, self.seconds, self.ended_by = list(past.records), past.seconds, past.ended_by
        if self.best is not None and self.best.epoch and self.best.is_exhausted(self.trainer.epoch):
            self.ended_by = "patience"
        if not self.callbacks:
            return
        problem = self.problem
        about = TrainingStart(
            seed=self.job.seed,
            epochs=self.job.training.epochs,
            records=past.records,
            estimator=self.job.estimator,
            backbone=self.job.backbone,
            training=self.job.training,
            model=plain(self.trainer.model),
            train_x=problem.train_x,
            candidates=problem.train_candidates,
            validation_x=problem.validation_x,
            validation_candidates=problem.validation_candidates,
            test_x=problem.test_x,
            num_classes=problem.num_classes,
            input_shape=problem.input_shape,
        )
        self.callbacks.start(about, problem, past.callbacks)

    def end(self) -> None:
        """Keep the model that is to be kept, and tell those who listen."""
        best_epoch = None
        if self.best is not None and self.best.keeps_model and self.error is None:
            self.best.restore_model(self.trainer.model)
            best_epoch = self.best.epoch
        self.result = Trained(
            seed=self.job.seed,
            records=tuple(self.records),
            candidates_hash=self.problem.train_candidates.content_hash,
            mean_size=self.problem.train_candidates.mean_size,
            seconds=self.seconds,
            best_epoch=best_epoch,
            model=plain(self.trainer.model).eval(),
            stacked=self.trainer.stacked,
            plan={**self.trainer.plan.as_dict(), "source": self.trainer.plan.source},
            error=self.error,
            ended_by=self.ended_by,
        )
        self.callbacks.end(self.result)
        self.job.listener.on_train_end(self.result)

    def trained(self) -> Trained:
        """Return the result of a training that has ended."""
        assert self.result is not None
        return self.result


class Team:
    """Members that take every epoch together: as one stack, or a single one alone."""

    def __init__(self, members: list[Member], ranks: Ranks | None = None) -> None:
        self.members = members
        self.ranks = ranks
        self._active: list[Member] = []
        self._unit: Trainer | Stack | None = None
        self._mark = time.perf_counter()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Bring the members to their checkpoints; inside, as many threads are used as when those were made."""
        with torch.random.fork_rng(devices=[]), self.members[0].checkpoints.same_threads():
            for member in self.members:
                member.restore()
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
            plan = self._unit.plan if isinstance(self._unit, Stack) else None
            self._unit = Stack(trainers, plan) if len(trainers) > 1 else trainers[0]
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
            if self.ranks is not None and (member.job.training.patience or member.job.callbacks):
                # Of which rank 0 alone knows.
                member.ended_by = self.ranks.tell(member.ended_by)
        # All or none: models of a stack go on from the same epoch.
        going_on = [member for member in self._active if not member.is_done]
        if going_on and going_on[0].checkpoints.is_due(going_on[0].trainer):
            for member in going_on:
                member.save()
        for member in self._active:
            if member.is_done:
                self._finish(member)

    def is_stopped(self, stop: StopRequest) -> bool:
        """Return whether somebody asked for a stop; of several ranks all know it, whichever of them was asked."""
        if self.ranks is None:
            return stop()
        # A signal reaches ranks at different moments: one that left here alone would wait for the others for ever. One
        # that comes while they agree is not forgotten, and counts the next time.
        heard = self.ranks.largest(stop.signal or 0)
        if heard:
            stop.signal = heard
        return heard > 0

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
            if member.result is None:  # it was complete when its checkpoint was made
                self._finish(member)

    def _finish(self, member: Member) -> None:
        if member.error is None:
            member.save(finished=True)
        member.end()

    def _count_seconds(self) -> None:
        """Share the time since the last call among those that were trained."""
        now = time.perf_counter()
        for member in self._active:
            member.seconds += (now - self._mark) / len(self._active)
        self._mark = now
