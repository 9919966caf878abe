"""A loss that is not finite says where it came from: the loss, its gradient, or the network; alone, stacked, late."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import pytest
import torch
from small_problems import MakeTrainer
from torch import Tensor

from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.losses import cross_entropy
from wsl_toolkit.training.divergence import EVERY, Origin, earliest
from wsl_toolkit.training.stacking import Stack
from wsl_toolkit.training.trainer import Trainer


@attrs.frozen(kw_only=True)
class Average(Estimator):
    """The average loss of the candidates, with something done to it."""

    name: ClassVar[str] = "average-of-mine"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return (candidates * cross_entropy(logits)).sum(-1) / candidates.sum(-1)


class NanLoss(Average):
    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return super().loss(logits, candidates, state) * torch.nan


class NanGradient(Average):
    """√0 is finite, and its slope is not."""

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        zero = (logits - logits.detach()).square().sum(-1)
        return super().loss(logits, candidates, state) + zero.sqrt()


class Unbounded(Average):
    """Nothing holds the weights back: they grow until they are infinite."""

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return -logits.square().sum(-1).clamp(max=1e30)


class LateNan(Average):
    """Its loss overflows where a logit is larger than 3, which takes some epochs."""

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return super().loss(logits, candidates, state) + torch.where(logits.amax(-1) > 3, torch.inf, 0.0)


def diverged(trainer: Trainer, epochs: int = 12) -> DivergedError:
    with pytest.raises(DivergedError) as caught:
        list(trainer.epochs(epochs))
    return caught.value


@pytest.mark.parametrize(
    ("cls", "options", "words", "role"),
    [
        (NanLoss, {}, "became nan at step 1 of epoch 1: the logits were finite", "estimator"),
        (NanGradient, {}, "a step before, the gradient of the loss of estimator average-of-mine was not", "estimator"),
        (Unbounded, {"lr": 1e12}, "the network's logits were not finite, after a finite loss", "backbone"),
        (LateNan, {"lr": 0.5}, "became inf at step", "estimator"),
    ],
)
def test_who_gave_it_first_is_said(
    make_trainer: MakeTrainer, cls: Any, options: dict[str, Any], words: str, role: str
) -> None:
    error = diverged(make_trainer(cls(), **options))
    assert words in str(error)
    assert error.wsl_role == role  # type: ignore[attr-defined]


def test_it_is_found_in_long_epochs_too(make_trainer: MakeTrainer) -> None:
    """The weights have been NaN for dozens of steps when the epoch ends."""
    trainer = make_trainer(NanGradient(), batch_size=2)
    error = diverged(trainer)
    assert trainer._loop.watch.origins[0].step < EVERY < 203 // 2
    assert "the gradient of the loss" in str(error)


def test_each_model_of_a_stack_has_its_own_origin(make_trainer: MakeTrainer) -> None:
    trainers = [make_trainer(Unbounded(), lr=lr, weight_decay=0.0) for lr in (1e-9, 1e38)]
    stack = Stack(trainers)
    outcomes = stack.train_epoch()
    assert outcomes is not None
    assert not isinstance(outcomes[0], DivergedError)
    assert "the network's logits were not finite" in str(outcomes[1])
    assert set(stack._loop.watch.origins) == {1}


def test_of_several_ranks_the_one_that_met_it_first_is_believed() -> None:
    late, network, loss = (
        Origin(kind=kind, step=step, largest=1.0)  # type: ignore[arg-type]
        for kind, step in (("gradient", 3), ("network", 2), ("loss", 2))
    )
    assert earliest([late, network, loss]) == loss
    assert earliest([late, network]) == network
    assert earliest([]) is None
