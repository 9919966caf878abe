"""Linear models learn by gradients that estimators write out: the numbers that torch would find, in less time."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import attrs
import pytest
import torch
from small_problems import MakeTrainer, estimator
from torch import Tensor

from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.errors import PluginError
from wsl_toolkit.losses import (
    cross_entropy,
    cross_entropy_and_gradient,
    for_and_against_and_gradient,
    log_complement,
    log_softmax,
    set_loss_and_gradient,
)
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.linear import differentiates_itself
from wsl_toolkit.training.stacking import Stack
from wsl_toolkit.training.trainer import Trainer

WRITTEN = ("average", "cc", "cl", "lw", "mcl", "mcl-exp", "mcl-log", "mcl-mae", "ppl", "proden", "rc", "supervised")


def test_these_estimators_write_their_gradients_out() -> None:
    names = load_plugins().registry.names("estimator")
    assert tuple(name for name in sorted(names) if differentiates_itself(estimator(name))) == WRITTEN


def by_torch(trainer: Trainer) -> Trainer:
    """Leave the gradient to torch."""
    trainer._loop._writer = None
    return trainer


def weights_of(trainer: Trainer) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def train(trainer: Trainer, epochs: int = 3) -> list[float]:
    return [record.metrics["train/risk"] for record in trainer.epochs(epochs)]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_linear_model_learns_what_it_learns_by_torchs_differentiation(make_trainer: MakeTrainer, name: str) -> None:
    own, torchs = make_trainer(name), by_torch(make_trainer(name))
    assert differentiates_itself(own.risk.estimator)
    assert train(own) == pytest.approx(train(torchs), rel=1e-5)
    torch.testing.assert_close(weights_of(own), weights_of(torchs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("values", [{"base_loss": "sigmoid"}, {"leverage": 0}, {"leverage": 2, "candidate_weight": 3}])
def test_so_it_does_with_the_parameters_of_lw(make_trainer: MakeTrainer, values: dict[str, Any]) -> None:
    own, torchs = make_trainer(estimator("lw", **values)), by_torch(make_trainer(estimator("lw", **values)))
    assert train(own) == pytest.approx(train(torchs), rel=1e-5)
    torch.testing.assert_close(weights_of(own), weights_of(torchs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ppl", "cc", "mcl", "lw"])
@pytest.mark.parametrize("seeds", [(0, 0, 0), (0, 1, 2)])
def test_so_does_a_stack_of_them_with_one_order_or_several(
    make_trainer: MakeTrainer, name: str, seeds: tuple[int, ...]
) -> None:
    rates = (0.1, 0.03, 0.01)
    own, torchs = ([make_trainer(name, seed=s, lr=lr) for s, lr in zip(seeds, rates, strict=True)] for _ in range(2))
    stacks = Stack(own), Stack(torchs)
    assert stacks[0]._loop._writer is not None
    stacks[1]._loop._writer = None
    for _ in range(3):
        for stack in stacks:
            stack.train_epoch()
    for one, other in zip(own, torchs, strict=True):
        torch.testing.assert_close(weights_of(one), weights_of(other), rtol=1e-4, atol=1e-5)


def test_a_stack_of_estimators_that_differ_has_each_ones_gradient(make_trainer: MakeTrainer) -> None:
    made = [
        [make_trainer(estimator("mcl", base_loss=loss)) for loss in ("cross-entropy", "cross-entropy", "mae")]
        for _ in range(2)
    ]
    assert Stack(made[0][:2])._loop._writer is not None
    mixed = Stack(made[1])
    assert mixed._loop._writer is None, "one of them leaves its gradient to torch"
    mixed.train_epoch()


@pytest.mark.parametrize("classes", [2, 5, 10, 1000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0, 30.0, 1e4])
def test_what_speaks_against_classes_has_the_gradient_that_torch_finds(classes: int, scale: float) -> None:
    rng = torch.Generator().manual_seed(classes)
    draw = functools.partial(torch.rand, 300, classes, generator=rng, dtype=torch.float64)
    logits, weights, against = (scale * (2 * draw() - 1)).requires_grad_(), draw(), draw()
    log_p = log_softmax(logits)
    losses = -(weights * log_p + against * log_complement(log_p)).sum(-1)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    found = for_and_against_and_gradient(logits.detach(), weights, against)
    torch.testing.assert_close(found, (losses.detach(), gradient), rtol=1e-11, atol=1e-11)
    single = for_and_against_and_gradient(logits.detach().float(), weights.float(), against.float())
    assert all(bool(value.isfinite().all()) for value in single)
    torch.testing.assert_close(single[1].double(), gradient, rtol=1e-3, atol=2e-3)


def test_a_class_that_has_all_is_pushed_down_by_all_that_speaks_against_it() -> None:
    for classes in (2, 3, 1000):
        logits = 1e4 * torch.eye(classes)[:1]
        _, slopes = for_and_against_and_gradient(logits, torch.zeros(1, classes), torch.ones(1, classes))
        expected = torch.full((1, classes), -1 / (classes - 1))  # the others are equally likely
        expected[0, 0] = 1.0
        torch.testing.assert_close(slopes, expected)


def test_the_gradient_of_a_set_is_finite_where_everything_is_extreme() -> None:
    for classes in (2, 1000):
        sets = torch.zeros(3, classes, dtype=torch.bool)
        sets[:, 0] = True
        for logits in (torch.full((3, classes), 1e4), torch.eye(3, classes) * 1e4, -1e4 * torch.eye(3, classes)):
            for value in (*set_loss_and_gradient(logits, sets), *cross_entropy_and_gradient(logits, sets.float())):
                assert bool(value.isfinite().all())


def test_whoever_hooks_into_a_linear_model_sees_torch_differentiate_it(make_trainer: MakeTrainer) -> None:
    seen: list[Tensor] = []
    trainer = make_trainer("ppl")
    trainer.train_epoch()
    weight = next(trainer.model.parameters())
    handle = weight.register_hook(seen.append)
    trainer.train_epoch()
    handle.remove()
    assert seen
    count = len(seen)
    trainer.train_epoch()
    assert len(seen) == count


def test_a_network_that_is_not_linear_is_left_to_torch(make_trainer: MakeTrainer) -> None:
    assert make_trainer("ppl", kind="mlp")._loop._writer is None
    assert make_trainer("scl-nl")._loop._writer is None
    assert make_trainer(estimator("ppl", base_loss="mae"))._loop._writer is None


@attrs.frozen(kw_only=True)
class Own(Estimator):
    """A mean loss with a gradient that may be wrong."""

    name: ClassVar[str] = "own"
    assumption: ClassVar[Setting] = Setting.GENERAL
    kind: ClassVar[Kind] = Kind.HEURISTIC
    has_gradient: ClassVar[bool] = True  # type: ignore[assignment]
    wrong: str = ""

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return (candidates * cross_entropy(logits)).sum(-1)

    def loss_and_gradient(self, logits: Tensor, candidates: Tensor, state: State) -> Any:
        losses, gradient = cross_entropy_and_gradient(logits, candidates.float())
        if self.wrong == "type":
            return losses
        if self.wrong == "shape":
            return losses, gradient.mean(-1)
        return losses + (self.wrong == "loss"), gradient * (2 if self.wrong == "gradient" else 1)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("type", "must return two tensors"),
        ("shape", "gives gradients torch.float32"),
        ("loss", "gives losses that are not those of the loss"),
        ("gradient", "gives gradients that are not those of the loss"),
    ],
)
def test_a_gradient_that_is_not_that_of_the_loss_is_refused_at_the_first_batch(
    make_trainer: MakeTrainer, wrong: str, told: str
) -> None:
    train(make_trainer(Own()))
    with pytest.raises(PluginError, match=f"estimator own: loss_and_gradient {told}.*test_written_gradients.py"):
        train(make_trainer(Own(wrong=wrong)))


def test_a_subclass_that_changes_the_loss_alone_does_not_inherit_its_gradient() -> None:
    @attrs.frozen(kw_only=True)
    class Doubled(Own):
        def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
            return 2 * Own.loss(self, logits, candidates, state)

    @attrs.frozen(kw_only=True)
    class Batchwise(Own):
        def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
            return self.loss(logits, candidates, state).max()

    assert differentiates_itself(Own())
    assert not differentiates_itself(Doubled())
    assert not differentiates_itself(Batchwise())


def test_weights_of_examples_weigh_the_gradient(make_trainer: MakeTrainer) -> None:
    weights = torch.linspace(0, 2, 203)
    own, torchs = make_trainer("cc", weights=weights), by_torch(make_trainer("cc", weights=weights))
    assert train(own) == pytest.approx(train(torchs), rel=1e-5)
    torch.testing.assert_close(weights_of(own), weights_of(torchs), rtol=1e-4, atol=1e-5)


def test_an_interrupted_training_goes_on_to_the_same_bits(make_trainer: MakeTrainer) -> None:
    whole = make_trainer("ppl")
    train(whole, 4)
    first = make_trainer("ppl")
    train(first, 2)
    second = make_trainer("ppl")
    second.load_state_dict(first.state_dict())
    train(second, 4)
    assert torch.equal(weights_of(whole), weights_of(second))
