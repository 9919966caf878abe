"""What estimators may ask for, each in a real training by a small estimator, and resumed to the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs
import pytest
import torch
from torch import Tensor, nn

from wsl_toolkit import Backbone, CandidateSets, Estimator, State
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.errors import ConfigError, InterruptedRunError, PluginError
from wsl_toolkit.networks import Ensemble, Extended
from wsl_toolkit.testing.small_training import (
    CLASSES,
    EXAMPLES,
    MeanLoss,
    StopsInTheMiddle,
    small_problem,
    small_training,
)
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.distributed.loop import check_spreads
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.risk import class_prior
from wsl_toolkit.training.trainer import Trainer
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

SHORT = Training(epochs=4, batch_size=16, lr=0.1, device="cpu")
When = Literal["never", "before", "after"]


@attrs.frozen(kw_only=True)
class Hidden(Backbone):
    """A hidden layer of seven units with dropout."""

    name: ClassVar[str] = "hidden"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(input_shape[0], 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.2), nn.Linear(7, num_classes)
        )


@attrs.frozen(kw_only=True)
class Pair(MeanLoss):
    """Two networks, each of which learns what the other is sure of (in the manner of CroSel)."""

    name: ClassVar[str] = "pair"
    needs: ClassVar[frozenset[str]] = frozenset({"two_networks"})
    stackable: ClassVar[bool] = False
    update_when: ClassVar[When] = "before"

    def init_state(self, candidates: Tensor) -> State:
        even = candidates / candidates.sum(-1, keepdim=True)
        return {"first": even, "second": even.clone()}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        mine = -(state["second"] * logits.log_softmax(-1)).sum(-1)
        return mine - (state["first"] * state["second_logits"].log_softmax(-1)).sum(-1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        def confident(found: Tensor) -> Tensor:
            return found.masked_fill(~candidates, -torch.inf).softmax(-1)

        return {"first": confident(logits), "second": confident(state["second_logits"])}


@attrs.frozen(kw_only=True)
class Balanced(MeanLoss):
    """Labels for all data at once after each epoch, with class shares that follow them (in the manner of SoLar)."""

    name: ClassVar[str] = "balanced"
    needs: ClassVar[frozenset[str]] = frozenset({"all_logits", "class_prior"})
    stackable: ClassVar[bool] = False

    def init_state(self, candidates: Tensor) -> State:
        return {"r": candidates / candidates.sum(-1, keepdim=True)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return -(state["r"] * logits.log_softmax(-1)).sum(-1)

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        found = state["all_logits"].softmax(-1) * candidates
        for _ in range(5):  # Sinkhorn: columns to the prior, rows to one
            found = found / found.sum(0) * state["class_prior"]
            found = found / found.sum(1, keepdim=True)
        return {"r": found}

    def report(self, state: State) -> Mapping[str, Tensor | float]:
        return {"entropy": -(state["r"] * state["r"].clamp(min=1e-9).log()).sum(-1).mean()}


@attrs.frozen(kw_only=True)
class Means(MeanLoss):
    """A slow mean of features, class by class (in the manner of RECORDS)."""

    name: ClassVar[str] = "means"
    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    stackable: ClassVar[bool] = False
    update_when: ClassVar[When] = "before"

    def init_features(self, candidates: CandidateSets, width: int) -> State:
        return {"mean": torch.zeros(candidates.num_classes, width)}

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        share = candidates / candidates.sum(-1, keepdim=True)
        return {
            "mean": 0.9 * state["mean"] + 0.1 * share.T @ state["features"] / share.sum(0).clamp(min=1).unsqueeze(1)
        }

    def report(self, state: State) -> Mapping[str, Tensor | float]:
        return {"length": state["mean"].norm()}


@attrs.frozen(kw_only=True)
class Indexed(MeanLoss):
    """Writes down where each example lies."""

    name: ClassVar[str] = "indexed"
    needs: ClassVar[frozenset[str]] = frozenset({"index"})
    update_when: ClassVar[When] = "before"

    def init_state(self, candidates: Tensor) -> State:
        return {"seen": torch.full((len(candidates),), -1)}

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        return {"seen": state["index"]}


@attrs.frozen(kw_only=True)
class Everybody(MeanLoss):
    """Pulls examples of which nothing is known to the class that they look most like (in the manner of GFWS)."""

    name: ClassVar[str] = "everybody"
    needs: ClassVar[frozenset[str]] = frozenset({"unlabelled", "index"})
    update_when: ClassVar[When] = "before"

    def init_state(self, candidates: Tensor) -> State:
        return {"visits": torch.zeros(len(candidates))}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        unknown = candidates.all(-1)
        entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        return torch.where(unknown, 0.1 * entropy, super().loss(logits, candidates, state))

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        return {"visits": state["visits"] + 1}

    def report(self, state: State) -> Mapping[str, Tensor | float]:
        return {"visits": state["visits"].mean()}


@attrs.frozen(kw_only=True)
class Heaviest(MeanLoss):
    """Learns from the heavier half of each batch: what it makes of weights no mean over examples could."""

    name: ClassVar[str] = "heaviest"
    needs: ClassVar[frozenset[str]] = frozenset({"weights"})

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        heavy = (state["weights"] >= state["weights"].median()).to(logits.dtype)
        return (heavy * self.loss(logits, candidates, state)).sum() / heavy.sum()


def half_unlabelled() -> Problem:
    problem = small_problem()
    mask = problem.train_candidates.mask()
    mask[::2] = True
    weights = torch.rand(EXAMPLES, generator=torch.Generator().manual_seed(5))
    return attrs.evolve(problem, train_candidates=CandidateSets.from_mask(mask), weights=weights)


def a_trainer(estimator: Estimator, problem: Problem | None = None) -> Trainer:
    return make_trainer(problem or small_problem(), estimator, Hidden(), SHORT, 0)


@pytest.mark.parametrize(
    "estimator",
    [Pair(), Balanced(), Means(), Indexed(), Everybody(), Heaviest()],
    ids=lambda each: each.name,
)
def test_a_training_is_resumed_to_the_same_bits(estimator: Estimator, tmp_path: Path) -> None:
    def checkpoints(problem: Problem) -> TrialCheckpoints:
        return TrialCheckpoints(Checkpoints(tmp_path, every=1), {"job": "a"})

    given: dict[str, Any] = {"estimator": estimator, "backbone": Hidden(), "problem": half_unlabelled()}
    whole = small_training(**given)
    with pytest.raises(InterruptedRunError):
        small_training(**given, checkpoints=checkpoints, stop=StopsInTheMiddle(after=10))
    resumed = small_training(**given, checkpoints=checkpoints)
    assert [each.metrics for each in resumed.records] == [each.metrics for each in whole.records]
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_two_networks_begin_apart_and_predict_the_mean_of_their_probabilities() -> None:
    trainer = a_trainer(Pair())
    assert isinstance(trainer.model, Extended)
    first, second = trainer.model.network, trainer.model.second
    assert second is not None
    assert not torch.equal(first[0].weight, second[0].weight)  # type: ignore[index]
    alone = a_trainer(MeanLoss())
    assert torch.equal(first[0].weight, alone.model[0].weight), "the first begins as it would alone"  # type: ignore[index]
    trained = small_training(estimator=Pair(), backbone=Hidden())
    assert isinstance(trained.model, Ensemble)
    x = small_problem().test_x
    assert isinstance(x, Tensor)
    together = predict(trained.model, x).softmax(1)
    apart = torch.stack([predict(member, x).softmax(1) for member in trained.model.members]).mean(0)
    torch.testing.assert_close(together, apart)
    (before, after) = (a_trainer(Pair()), a_trainer(Pair()))
    after.train_epoch()
    for one, other in zip(before.model.parameters(), after.model.parameters(), strict=True):
        assert not torch.equal(one, other), "both networks are trained"


def test_after_an_epoch_an_estimator_sees_the_logits_of_all_examples() -> None:
    trainer = a_trainer(Balanced())
    seen: dict[str, Tensor] = {}
    ask = trainer.risk.after_epoch

    def listen(index: Tensor, epoch: int, seed: Tensor, logits: State | None = None) -> None:
        assert logits is not None
        seen["logits"] = logits["all_logits"]
        ask(index, epoch, seed, logits)

    trainer.risk.after_epoch = listen  # type: ignore[method-assign]
    trainer.train_epoch()
    problem = small_problem()
    torch.testing.assert_close(seen["logits"], predict(trainer.model, problem.train_x))
    labels = trainer.risk.get_buffer("row_r")
    torch.testing.assert_close(labels.sum(1), torch.ones(EXAMPLES))
    assert bool((labels[~problem.train_candidates.mask()] == 0).all())


@attrs.frozen(kw_only=True)
class LookingPair(Pair):
    """Two networks that keep each other's confidences of all examples after each epoch."""

    name: ClassVar[str] = "looking-pair"
    needs: ClassVar[frozenset[str]] = frozenset({"two_networks", "all_logits"})
    update_when: ClassVar[When] = "never"

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        return {}

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        names = {"first": "all_logits", "second": "second_all_logits"}
        return {to: state[name].masked_fill(~candidates, -torch.inf).softmax(1) for to, name in names.items()}


def test_of_two_networks_each_ones_logits_of_all_examples_are_given() -> None:
    trainer = a_trainer(LookingPair())
    trainer.train_epoch()
    assert isinstance(trainer.model, Extended)
    problem = small_problem()
    for name, network in (("first", trainer.model.network), ("second", trainer.model.second)):
        assert network is not None
        wanted = predict(network, problem.train_x).masked_fill(~problem.train_candidates.mask(), -torch.inf).softmax(1)
        torch.testing.assert_close(trainer.risk.get_buffer(f"row_{name}"), wanted)
    assert trainer.model.network.training, "they go on training"


def test_the_class_prior_is_the_mean_of_even_shares() -> None:
    sets = CandidateSets.from_sets([[0], [0, 1], [1, 2, 3], [0, 1, 2, 3, 4]], 5)
    third = 1 / 3
    expected = torch.tensor([1.5, 0.5 + third, third, third, 0.0]) / 3  # the full set says nothing
    torch.testing.assert_close(class_prior(sets), expected)
    torch.testing.assert_close(class_prior(CandidateSets.from_mask(torch.ones(2, 4).bool())), torch.full((4,), 0.25))


def test_features_are_as_wide_as_the_network_or_its_head_makes_them() -> None:
    trainer = a_trainer(Means())
    assert trainer.risk.get_buffer("shared_mean").shape == (CLASSES, 7)

    @attrs.frozen(kw_only=True)
    class WithHead(Means):
        def extend(self, network: nn.Module) -> nn.Module:
            return Extended(network, self.needs, project=nn.Linear(7, 3))

    assert a_trainer(WithHead()).risk.get_buffer("shared_mean").shape == (CLASSES, 3)

    @attrs.frozen(kw_only=True)
    class Undeclared(Means):
        needs: ClassVar[frozenset[str]] = frozenset()

    with pytest.raises(PluginError, match="does not say that it needs 'features'"):
        a_trainer(Undeclared())


def test_the_index_is_the_place_in_the_training_part() -> None:
    trainer = a_trainer(Indexed())
    trainer.train_epoch()
    assert trainer.risk.get_buffer("row_seen").tolist() == list(range(EXAMPLES))


def test_full_sets_take_part_only_if_the_estimator_asks() -> None:
    (asked,) = {each.metrics["estimator/visits"] for each in small_training(estimator=Everybody(), epochs=1).records}
    assert asked == 1.0
    problem = half_unlabelled()
    trainer = a_trainer(Everybody(), problem)
    trainer.train_epoch()
    assert trainer.risk.get_buffer("row_visits").tolist() == [1.0] * EXAMPLES
    assert len(a_trainer(MeanLoss(), problem).visited) == EXAMPLES // 2


def test_what_an_estimator_reports_is_in_the_record_of_every_epoch() -> None:
    lengths = [
        each.metrics["estimator/length"] for each in small_training(estimator=Means(), backbone=Hidden()).records
    ]
    assert len(lengths) == 4
    assert len(set(lengths)) == 4
    assert all(length > 0 for length in lengths)


def test_a_report_on_the_state_of_examples_is_refused_on_several_ranks_and_one_on_shared_state_is_not() -> None:
    with pytest.raises(ConfigError, match="reports on the state of all examples"):
        check_spreads(Everybody())
    check_spreads(Means())
