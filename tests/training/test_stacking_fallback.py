"""Whoever keeps to the contract of pure functions is stacked; whoever does not trains alone, and is told why."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import attrs
import pytest
import torch
from small_problems import MakeTrainer, estimator, inputs_and_candidates, train_stacked
from test_stacking import assert_same_trajectory, family, train_alone
from torch import Tensor, nn

from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.errors import PluginError
from wsl_toolkit.losses import cross_entropy
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.stacking import group, why_it_does_not_pay, why_not
from wsl_toolkit.training.trainer import Trainer


@attrs.frozen(kw_only=True)
class ThirdParty(Estimator):
    """A pure estimator that nobody here knows, with rows, shared state and `dim=1` instead of `dim=-1`."""

    name: ClassVar[str] = "third-party"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"

    def init_state(self, candidates: Tensor) -> State:
        return {"weight": candidates.float(), "seen": torch.zeros(len(candidates))}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return (state["weight"] * cross_entropy(logits)).sum(dim=1) / (1 + state["seen"])

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        weight = torch.softmax(logits, dim=1) * candidates
        return {"weight": 0.5 * state["weight"] + 0.5 * weight, "seen": state["seen"] + 1}


class WithSharedState(ThirdParty):
    name = "with-shared-state"

    def init_shared(self, candidates: Any) -> State:
        return {"mean_logits": torch.zeros(candidates.num_classes)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return super().loss(logits, candidates, state) + 0.1 * (logits - state["mean_logits"]).square().mean(dim=1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        return {
            **super().update(logits, candidates, state),
            "mean_logits": 0.9 * state["mean_logits"] + 0.1 * logits.mean(0),
        }


class Noisy(ThirdParty):
    name = "noisy"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return super().loss(logits + 0.1 * torch.randn_like(logits), candidates, state)


class Scribbler(ThirdParty):
    name = "scribbler"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        state["weight"].mul_(0.9)
        return super().loss(logits, candidates, state)


class LooksAtTheBatch(ThirdParty):
    name = "looks-at-the-batch"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return super().loss(logits, candidates, state) / logits.std()


class Branches(ThirdParty):
    name = "branches"

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        mean = self.loss(logits, candidates, state).mean()
        return mean if mean > 1 else 2 * mean


class Declines(ThirdParty):
    name = "declines"
    stackable = False


class NeedsMore(ThirdParty):
    name = "needs-more"
    needs = frozenset({"features"})


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("cls", [ThirdParty, WithSharedState])
def test_a_third_partys_pure_estimator_is_stacked(
    make_trainer: MakeTrainer, cls: type[Estimator], own: bool, kind: str
) -> None:
    together, alone = (family(make_trainer, cls(), kind, own) for _ in range(2))
    assert [sorted(each.places) for each in group(together)] == [[0, 1, 2, 3]]
    list(train_stacked(together, 3))
    train_alone(alone, 3)
    assert_same_trajectory(together, alone)


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (Noisy, "estimator noisy gives another loss when asked again"),
        (Scribbler, "estimator scribbler writes into its arguments"),
        (LooksAtTheBatch, "estimator looks-at-the-batch, vectorised over models, gives another loss"),
        (Branches, "estimator branches cannot be vectorised over models"),
        (Declines, "estimator declines declares that it cannot be stacked"),
        (NeedsMore, "estimator needs-more needs features"),
    ],
)
def test_one_that_cannot_be_stacked_trains_alone_or_is_refused_and_is_told_why(
    make_trainer: MakeTrainer, cls: type[Estimator], reason: str
) -> None:
    together, alone = (family(make_trainer, cls(), "linear", own=False) for _ in range(2))
    found = why_not(together)
    assert found is not None
    assert reason in found
    if cls in (Noisy, Scribbler):  # neither is a function of its arguments, alone or stacked
        with pytest.raises(PluginError, match=f"estimator {cls.name}: loss (drew from|wrote to)"):
            list(train_stacked(together, 1))
    elif cls is not NeedsMore:  # it needs a network that this family does not have
        assert [each.alone_because for each in group(together)] == [found] * 4
        list(train_stacked(together, 2))
        train_alone(alone, 2)
        assert_same_trajectory(together, alone)


@pytest.mark.parametrize("name", load_plugins().registry.names("estimator"))
def test_every_built_in_estimator_that_says_so_can_be_stacked(make_trainer: MakeTrainer, name: str) -> None:
    cls = load_plugins().registry.get("estimator", name)
    if not cls.stackable or cls.needs_that_do_not("stacks"):
        assert why_not([make_trainer(name), make_trainer(name, lr=0.5)]) is not None
        return
    problem = inputs_and_candidates()
    assert why_not([make_trainer(name, problem=problem), make_trainer(name, problem=problem, lr=0.5)]) is None


def test_dropout_draws_from_each_models_own_stream_and_so_trains_alone(make_trainer: MakeTrainer) -> None:
    together, alone = (family(make_trainer, "ppl", "dropout", own=False) for _ in range(2))
    reason = why_not(together)
    assert reason is not None
    assert "its network cannot be vectorised over models" in reason
    list(train_stacked(together, 2))
    train_alone(alone, 2)
    assert_same_trajectory(together, alone, rtol=0)


def test_other_optimisers_train_one_by_one(make_trainer: MakeTrainer) -> None:
    trainers = [make_trainer(optimizer="rmsprop", lr=lr) for lr in (0.1, 0.01)]
    assert why_not(trainers) == "only sgd, adam and adamw step many models at once"
    mixed = [make_trainer(optimizer=name) for name in ("adam", "adamw")]
    assert why_not(mixed) == "only sgd, adam and adamw step many models at once"


def test_adam_steps_large_models_one_by_one(make_trainer: MakeTrainer) -> None:
    for width, reason in ((100, None), (20_000, "Adam's step of so many weights (100,005) is faster model by model")):
        problem = inputs_and_candidates(n=20, d=width)
        pair = [make_trainer(optimizer="adam", lr=lr, problem=problem) for lr in (0.1, 0.01)]
        assert why_it_does_not_pay(pair) == reason
        plain = [make_trainer(optimizer="sgd", lr=lr, problem=problem) for lr in (0.1, 0.01)]
        assert why_it_does_not_pay(plain) is None


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("amsgrad", True, "nesterov, dampening, amsgrad and maximisation are for one model at a time"),
        ("betas", (0.8, 0.999), "betas differs between the models"),
        ("eps", 1e-6, "eps differs between the models"),
    ],
)
def test_an_adam_that_differs_trains_alone(make_trainer: MakeTrainer, name: str, value: object, reason: str) -> None:
    problem = inputs_and_candidates()
    trainers = [make_trainer(optimizer="adam", lr=lr, problem=problem) for lr in (0.1, 0.01)]
    assert why_not(trainers) is None
    trainers[1].optimizer.param_groups[0][name] = value
    assert why_not(trainers) == reason


def test_asking_leaves_the_trainers_as_they_were(make_trainer: MakeTrainer) -> None:
    asked, untouched = (family(make_trainer, "ppl", "mlp", own=False) for _ in range(2))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert why_not(asked) is None
    assert torch.equal(torch.get_rng_state(), before)
    train_alone(asked, 1)
    train_alone(untouched, 1)
    assert_same_trajectory(asked, untouched, rtol=0)


def test_a_network_that_mixes_its_batch_in_its_own_way_is_checked(make_trainer: MakeTrainer) -> None:
    class Mixes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if float(x.detach().mean()) > 0:  # depends on values: not for vmap
                return x
            return 2 * x

    def members() -> list[Trainer]:
        found = [make_trainer("ppl", "mlp", lr=lr) for lr in (0.1, 0.01)]
        for trainer in found:
            trainer.model.append(Mixes())  # type: ignore[operator]
        return found

    reason = why_not(members())
    assert reason is not None
    assert "its network cannot be vectorised over models" in reason


def test_estimators_of_different_classes_do_not_share_a_stack(make_trainer: MakeTrainer) -> None:
    problem = inputs_and_candidates()
    trainers = [make_trainer(estimator(name), problem=problem) for name in ("ppl", "proden", "ppl", "proden")]
    assert sorted(each.places for each in group(trainers)) == [(0, 2), (1, 3)]
