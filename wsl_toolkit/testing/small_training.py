"""A small training for contracts to watch: a hundred examples, a linear network, the average loss of the candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Backbone, Callback, Estimator, State
from wsl_toolkit.data.problem import CleanLabels, Problem
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.settings import Kind, Setting
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.testing.common import stream
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.train import Trained, TrainingJob, train
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

EXAMPLES, HELD_OUT, CLASSES, WIDTH = 64, 36, 5, 6


@attrs.frozen(kw_only=True)
class Line(Backbone):
    """One linear layer."""

    name: ClassVar[str] = "line"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Build it."""
        return nn.Linear(input_shape[0], num_classes)


@attrs.frozen(kw_only=True)
class MeanLoss(Estimator):
    """The mean cross-entropy of the candidates."""

    name: ClassVar[str] = "mean-loss"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Return one loss for each example."""
        return -(logits.log_softmax(-1) * candidates).sum(-1) / candidates.sum(-1)


def small_problem() -> Problem:
    """Return examples whose sets hold the label and a neighbour of it, and clean labels behind their wall."""
    rng = stream(7)
    y = torch.randint(CLASSES, (EXAMPLES + HELD_OUT,), generator=rng)
    centres = 2 * torch.randn(CLASSES, WIDTH, generator=rng)
    x = centres[y] + torch.randn(len(y), WIDTH, generator=rng)
    mask = nn.functional.one_hot(y, CLASSES).bool()
    mask = mask | mask.roll(1, dims=1)
    (train_x, held_x), (train_y, held_y) = x.split([EXAMPLES, HELD_OUT]), y.split([EXAMPLES, HELD_OUT])
    train_sets, held_sets = (CandidateSets.from_mask(part) for part in mask.split([EXAMPLES, HELD_OUT]))
    return Problem(
        train_x=train_x,
        train_candidates=train_sets,
        validation_x=held_x,
        validation_candidates=held_sets,
        test_x=held_x,
        clean=CleanLabels(train=train_y, validation=held_y, test=held_y),
        transform=nn.Identity(),
        num_classes=CLASSES,
        input_shape=(WIDTH,),
    )


def small_training(
    *callbacks: Callback,
    epochs: int = 4,
    estimator: Estimator | None = None,
    backbone: Backbone | None = None,
    problem: Problem | None = None,
    checkpoints: Callable[[Problem], TrialCheckpoints] = lambda problem: TrialCheckpoints(),
    stop: StopRequest | None = None,
) -> Trained:
    """Train for a few epochs of four batches."""
    job = TrainingJob(
        problem=problem or small_problem(),
        estimator=estimator or MeanLoss(),
        backbone=backbone or Line(),
        training=Training(epochs=epochs, batch_size=16, lr=0.1, device="cpu"),
        seed=0,
        checkpoints=checkpoints,
        callbacks=callbacks,
    )
    return train([job], stop=stop)[0]


class StopsInTheMiddle(StopRequest):
    """Asks for a stop after so many questions whether to stop, of which there are two or so a batch."""

    def __init__(self, after: int = 20) -> None:
        super().__init__()
        self.left = after

    def __call__(self) -> bool:
        """Return whether to stop."""
        self.left -= 1
        if self.left < 0:
            self.signal = 2
        return self.signal is not None
