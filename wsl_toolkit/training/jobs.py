"""What is to be trained, who hears of it, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from torch import nn

from wsl_toolkit.components import Backbone, Callback, Estimator
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

if TYPE_CHECKING:
    import pandas as pd


def history_frame(records: Sequence[EpochRecord]) -> pd.DataFrame:
    """Return a row an epoch: its number, every metric, its seconds."""
    import pandas as pd

    rows = [{"epoch": record.epoch, **record.metrics, "seconds": record.seconds} for record in records]
    return pd.DataFrame(rows, columns=None if rows else ["epoch", "seconds"])


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
    plan: dict[str, Any] = attrs.field(factory=dict)
    """How it was trained: device, threads, chunks, and where that choice comes from."""
    error: DivergedError | None = None
    """Why it did not come to its end: its loss became NaN or infinite."""
    ended_by: str = ""
    """Who ended it before its last epoch: 'patience', 'callback <name>', 'listener', or nobody."""


class JobListener:
    """Whoever in the toolkit trains a job and must hear of it all: to track it, to show it, to prune it.

    It is trusted with the whole problem, unlike a `Callback`, which anybody may write.
    """

    def on_train_start(self, problem: Problem, checkpoints: TrialCheckpoints) -> None:
        """The problem is there, and training is about to begin, or to go on from a checkpoint."""

    def on_epoch_end(self, record: EpochRecord) -> bool | None:
        """An epoch ended, was measured, and callbacks added to it; return True to end this training here."""

    def on_figure(self, name: str, figure: Any) -> None:
        """A callback made a figure."""

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
    listener: JobListener = attrs.field(factory=JobListener)
    callbacks: Sequence[Callback] = ()
    """Who else hears of its training; of several ranks, the first alone calls them."""

    def load(self) -> Problem:
        """Return the problem."""
        return self.problem if isinstance(self.problem, Problem) else self.problem()
