"""Examples that count more or less: in the engine's mean, by repetition, in stacks, on ranks, for whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_processes import assert_same_state, on_ranks
from torch import Tensor, nn

import wsl_toolkit as wsl
from wsl_toolkit import Backbone, CandidateSets, Estimator, State
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import ConfigError, DataError, PluginError
from wsl_toolkit.testing.small_training import CLASSES, EXAMPLES, WIDTH, MeanLoss, small_problem
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.distributed import Ranks
from wsl_toolkit.training.stacking.grouping import why_not
from wsl_toolkit.training.trainer import Trainer

WHOLE = Training(epochs=2, batch_size=10_000, lr=0.3, weight_decay=0.0, momentum=0.0, device="cpu")


@attrs.frozen(kw_only=True)
class Plain(Backbone):
    """One layer."""

    name: ClassVar[str] = "plain"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Linear(input_shape[0], num_classes)


@attrs.frozen(kw_only=True)
class Asks(MeanLoss):
    """Weighs its losses by itself, and notes the weights that it was given."""

    name: ClassVar[str] = "asks"
    needs: ClassVar[frozenset[str]] = frozenset({"weights"})
    update_when: ClassVar[Any] = "before"

    def init_state(self, candidates: Tensor) -> State:
        return {"seen": torch.zeros(len(candidates))}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return state["weights"] * super().loss(logits, candidates, state)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        return {"seen": state["weights"]}


@attrs.frozen(kw_only=True)
class WholeBatch(MeanLoss):
    """An objective that is no mean of losses."""

    name: ClassVar[str] = "whole-batch"

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return self.loss(logits, candidates, state).amax()


def weights_of(n: int) -> Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.1


def a_trainer(
    estimator: Estimator, problem: Problem, training: Training = WHOLE, ranks: Ranks | None = None
) -> Trainer:
    return make_trainer(problem, estimator, Plain(), training, 0, ranks)


def weighted(problem: Problem, weights: Tensor | None = None) -> Problem:
    return attrs.evolve(problem, weights=weights_of(EXAMPLES) if weights is None else weights)


def test_a_step_descends_the_weighted_mean_of_the_losses() -> None:
    problem = weighted(small_problem())
    trainer = a_trainer(MeanLoss(), problem)
    assert isinstance(problem.train_x, Tensor)
    assert problem.weights is not None
    weight, bias = (p.detach().clone().requires_grad_() for p in trainer.model.parameters())
    logits = problem.train_x @ weight.T + bias
    losses = MeanLoss().loss(logits, problem.train_candidates.mask(), {})
    total = sum(float(w) for w in problem.weights)
    literal = sum(float(w) / total * loss for w, loss in zip(problem.weights, losses, strict=True))
    assert isinstance(literal, Tensor)
    literal.backward()
    assert weight.grad is not None
    (record,) = trainer.epochs(1)
    assert record.metrics["train/risk"] == pytest.approx(float(literal.detach()), rel=1e-5)
    torch.testing.assert_close(trainer.model.weight.detach(), weight.detach() - 0.3 * weight.grad)  # type: ignore[union-attr, operator]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=EXAMPLES, max_size=EXAMPLES).filter(any))
def test_a_whole_number_counts_as_often_as_the_example_is_there(times: list[int]) -> None:
    problem, often = small_problem(), torch.tensor(times)
    assert isinstance(problem.train_x, Tensor)
    rows = torch.arange(EXAMPLES).repeat_interleave(often)
    repeated = attrs.evolve(
        problem, train_x=problem.train_x[rows], train_candidates=problem.train_candidates.take(rows)
    )
    one, other = a_trainer(MeanLoss(), weighted(problem, often.double())), a_trainer(MeanLoss(), repeated)
    for trainer in (one, other):
        list(trainer.epochs(2))
    torch.testing.assert_close(one.model.state_dict(), other.model.state_dict(), rtol=1e-4, atol=1e-6)


def test_who_asks_is_given_each_examples_own_weight_and_is_not_weighed_again() -> None:
    problem = weighted(small_problem())
    assert problem.weights is not None
    asking, plain = a_trainer(Asks(), problem), a_trainer(MeanLoss(), problem)
    for trainer in (asking, plain):
        trainer.train_epoch()
    expected = problem.weights / problem.weights.mean()
    torch.testing.assert_close(asking.risk.get_buffer("row_seen"), expected.float())
    assert float(asking.risk.get_buffer("row_seen").mean()) == pytest.approx(1)
    torch.testing.assert_close(asking.model.state_dict(), plain.model.state_dict())


def test_who_asks_where_there_are_none_is_given_ones() -> None:
    trainer = a_trainer(Asks(), small_problem())
    trainer.train_epoch()
    assert trainer.risk.get_buffer("row_seen").tolist() == [1.0] * EXAMPLES


def test_an_objective_on_whole_batches_is_refused_unless_it_asks() -> None:
    with pytest.raises(
        ConfigError, match=r"whole-batch works on whole batches, .* unless it says that it needs 'weights'"
    ):
        a_trainer(WholeBatch(), weighted(small_problem()))

    @attrs.frozen(kw_only=True)
    class Asking(WholeBatch):
        needs: ClassVar[frozenset[str]] = frozenset({"weights"})

    a_trainer(Asking(), weighted(small_problem())).train_epoch()


def test_weights_that_are_all_zero_and_names_that_clash_are_refused() -> None:
    with pytest.raises(ConfigError, match="weights of all training examples are 0"):
        a_trainer(MeanLoss(), weighted(small_problem(), torch.zeros(EXAMPLES)))

    @attrs.frozen(kw_only=True)
    class Clash(Asks):
        def init_state(self, candidates: Tensor) -> State:
            return {"weights": torch.ones(len(candidates))}

    with pytest.raises(PluginError, match="init_state returned 'weights', which is what the engine gives it"):
        a_trainer(Clash(), small_problem())


def test_a_stack_holds_those_that_ask_and_no_others() -> None:
    problem = weighted(small_problem())
    rates = [Training(epochs=2, batch_size=16, lr=lr, device="cpu") for lr in (0.1, 0.3)]
    assert why_not([a_trainer(Asks(), problem, each) for each in rates]) is None
    assert why_not([a_trainer(MeanLoss(), problem, each) for each in rates]) == "its examples are weighted"


def spread(ranks: Ranks | None, asks: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    short = Training(epochs=2, batch_size=16, lr=0.1, device="cpu")
    trainer = a_trainer(Asks() if asks else MeanLoss(), weighted(small_problem()), short, ranks)
    list(trainer.epochs(2))
    return trainer.state_dict()


@pytest.mark.parametrize("asks", [False, True])
def test_two_ranks_weigh_as_one_process(asks: bool, tmp_path: Path) -> None:
    one, _ = on_ranks(2, tmp_path, spread, asks)
    assert_same_state(one, spread(None, asks), rtol=1e-4, atol=1e-5)


# --------------------------------------------------------------------------------------------- from data to training


def made_data(weights: Any) -> Data:
    rng = torch.Generator().manual_seed(1)
    sets = CandidateSets.from_labels(torch.arange(50) % CLASSES, CLASSES)
    return wsl.make_data(torch.randn(50, WIDTH, generator=rng), sets, weights=weights)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1.0] * 49, "weights must be 50 numbers, one for each example, not of shape \\(49,\\)"),
        ([1.0] * 49 + [-2.0], "the weight of example 49 is -2.0: it must be 0 or more"),
        ([float("nan")] + [1.0] * 49, "the weight of example 0 is nan"),
        ([0.0] * 50, "all weights are 0"),
        (["a"] * 50, "weights must be 50 numbers, not list"),
    ],
)
def test_data_refuses_what_is_no_weight(weights: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        made_data(weights)


def test_weights_follow_their_examples_into_the_training_part_and_are_part_of_the_digest() -> None:
    marks = torch.arange(50) + 1.0
    data = attrs.evolve(made_data(marks), x=marks.unsqueeze(1).expand(50, WIDTH), normalise="none")
    problem = make_problem(data, None, seed=0, validation=0.2, test=0.2)
    assert isinstance(problem.train_x, Tensor)
    assert problem.weights is not None
    assert torch.equal(problem.weights, problem.train_x[:, 0])
    digests = {attrs.evolve(data, weights=weights).digest() for weights in (None, marks, 2 * marks)}
    assert len(digests) == 3


def test_train_weighs_and_the_risk_of_ones_own_loop_is_the_weighted_mean() -> None:
    short: dict[str, Any] = {"estimator": "ppl", "backbone": "linear", "epochs": 2, "test": 0.2, "seed": 0}
    plain, heavy = (wsl.train(made_data(w), **short).history for w in (None, torch.arange(50) + 1.0))
    same = wsl.train(made_data([3.0] * 50), **short).history
    assert list(plain["train/risk"]) != list(heavy["train/risk"])
    assert list(same["train/risk"]) == pytest.approx(list(plain["train/risk"]), rel=1e-5)

    sets, weights = small_problem().train_candidates, weights_of(EXAMPLES)
    logits = torch.randn(EXAMPLES, CLASSES, generator=torch.Generator().manual_seed(2))
    losses = wsl.risk("cc", sets).estimator.loss(logits, sets.mask(), {})
    found = wsl.risk("cc", sets, weights=weights)(logits, torch.arange(EXAMPLES))
    torch.testing.assert_close(found, ((weights * losses).sum() / weights.sum()).float())
    with pytest.raises(DataError, match="weights must be"):
        wsl.risk("cc", sets, weights=[1.0])
