"""Two networks of one model stack with those of others, and each pair takes the steps that it would take alone."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest
import torch
from test_stacking import assert_same_trajectory, train_alone
from torch import Tensor, nn

from wsl_toolkit import Backbone, State
from wsl_toolkit.losses import log_set_probability
from wsl_toolkit.networks import Extended
from wsl_toolkit.testing.small_training import MeanLoss, small_problem
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import EpochRecord, predict
from wsl_toolkit.training.stacking import Stack, why_not
from wsl_toolkit.training.trainer import Trainer


@attrs.frozen(kw_only=True)
class Plain(Backbone):
    """A perceptron without anything random."""

    name: ClassVar[str] = "plain"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(input_shape[0], 7), nn.ReLU(), nn.Linear(7, num_classes))


@attrs.frozen(kw_only=True)
class Agreeing(MeanLoss):
    """Each network learns its set, and what the other one says."""

    name: ClassVar[str] = "agreeing"
    needs: ClassVar[frozenset[str]] = frozenset({"two_networks", "epoch"})

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        both = (logits, state["second_logits"])
        apart = (both[0].softmax(-1) - both[1].softmax(-1)).square().sum(-1)
        return state["epoch"] * apart - sum(log_set_probability(own, candidates) for own in both)


@attrs.frozen(kw_only=True)
class CoTeaching(MeanLoss):
    """Each network learns from the examples of a batch that are easiest for the other one."""

    name: ClassVar[str] = "co-teaching"
    needs: ClassVar[frozenset[str]] = frozenset({"two_networks"})

    share: float = 0.7

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        losses = [-log_set_probability(own, candidates) for own in (logits, state["second_logits"])]
        count = int(self.share * len(logits))
        easy = [own.detach().argsort(stable=True)[:count] for own in losses]
        return losses[0].gather(0, easy[1]).mean() + losses[1].gather(0, easy[0]).mean()


def pairs(estimator: MeanLoss) -> list[Trainer]:
    """Four pairs with learning rates of their own, two of them with an initialisation and an order of their own."""
    problem = small_problem()
    trainings = [Training(epochs=3, batch_size=16, lr=lr, device="cpu") for lr in (0.3, 0.1, 0.03, 0.01)]
    return [make_trainer(problem, estimator, Plain(), each, m // 2) for m, each in enumerate(trainings)]


@pytest.mark.parametrize("estimator", [Agreeing(), CoTeaching()], ids=lambda each: each.name)
def test_a_stack_of_pairs_follows_each_pairs_own_trajectory(estimator: MeanLoss) -> None:
    together, alone = pairs(estimator), pairs(estimator)
    assert why_not(together) is None
    stack = Stack(together)
    outcomes = [stack.train_epoch() for _ in range(3)]
    records = train_alone(alone, 3)
    assert_same_trajectory(together, alone)
    for epoch, row in enumerate(outcomes):
        assert row is not None
        for m, outcome in enumerate(row):
            assert isinstance(outcome, EpochRecord)
            assert outcome.metrics == pytest.approx(records[m][epoch].metrics, rel=1e-3)
    x = small_problem().test_x
    assert isinstance(x, Tensor)
    for one, other in zip(together, alone, strict=True):
        assert isinstance(one.model, Extended)
        assert one.model.second is not None
        assert not torch.equal(one.model.network[0].weight, one.model.second[0].weight)  # type: ignore[index]
        torch.testing.assert_close(predict(one.model, x), predict(other.model, x), rtol=1e-3, atol=1e-4)
