"""What is to be trained, who hears of it, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from torch import nn

from wsl_toolkit.components import Backbone, Estimator
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints


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
