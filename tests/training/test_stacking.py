"""Models that train together take the steps that they would take alone."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_problems import MakeTrainer, estimator, inputs_and_candidates, train_stacked
from torch import Tensor, nn

from wsl_toolkit.errors import DivergedError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.evaluation import LogitEvaluation
from wsl_toolkit.training.formulas import accuracy, covering_rate
from wsl_toolkit.training.stacking import Stack, group, grouping, why_it_does_not_pay, why_not
from wsl_toolkit.training.trainer import Trainer

METHODS = ["ppl", "proden", "cc", "lw", "mcl", "cl-nn", "cl-ga", "supervised"]
Family = Callable[[], list[Trainer]]


def assert_same_trajectory(together: list[Trainer], alone: list[Trainer], rtol: float = 1e-3) -> None:
    for ours, theirs in zip(together, alone, strict=True):
        for part in ("model", "risk"):
            one, other = ours.state_dict()[part], theirs.state_dict()[part]
            assert one.keys() == other.keys()
            for name in one:
                torch.testing.assert_close(one[name], other[name], rtol=rtol, atol=1e-4, msg=name)
        assert torch.equal(ours.shuffle.get_state(), theirs.shuffle.get_state())
        assert ours.epoch == theirs.epoch
        for mine, reference in zip(
            ours.optimizer.state_dict()["state"].values(), theirs.optimizer.state_dict()["state"].values(), strict=True
        ):
            torch.testing.assert_close(mine["momentum_buffer"], reference["momentum_buffer"], rtol=rtol, atol=1e-4)


def family(
    make: MakeTrainer, method: Any, kind: str, own: bool, own_sets: bool = False, **options: Any
) -> list[Trainer]:
    """Four models with learning rates of their own; with `own`, also data, sets, order and initialisation."""
    x, candidates = inputs_and_candidates()
    members = []
    for m, lr in enumerate((0.1, 0.03, 0.01, 0.003)):
        problem = inputs_and_candidates(seed=m) if own else (x, candidates)
        if own_sets:
            problem = (problem[0], inputs_and_candidates(seed=m)[1])
        members.append(
            make(method, kind, problem=problem, lr=lr, weight_decay=10.0 ** -(m + 2), seed=m if own else 0, **options)
        )
    return members


def train_alone(trainers: list[Trainer], epochs: int) -> list[list[EpochRecord]]:
    return [list(trainer.epochs(epochs)) for trainer in trainers]


@pytest.mark.parametrize("own", ["nothing", "sets", "orders"])
@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("method", METHODS)
def test_a_stack_follows_each_models_own_trajectory(
    make_trainer: MakeTrainer, method: str, kind: str, own: str
) -> None:
    together, alone = (family(make_trainer, method, kind, own == "orders", own_sets=own == "sets") for _ in range(2))
    stack = Stack(together)
    assert stack.own_orders == (own == "orders")
    outcomes = [stack.train_epoch() for _ in range(3)]
    records = train_alone(alone, 3)
    assert_same_trajectory(together, alone)
    for epoch, row in enumerate(outcomes):
        for m, outcome in enumerate(row):
            assert isinstance(outcome, EpochRecord)
            assert outcome.epoch == epoch + 1
            assert outcome.metrics == pytest.approx(records[m][epoch].metrics, rel=1e-3)


def test_models_of_a_stack_differ_from_each_other(make_trainer: MakeTrainer) -> None:
    trainers = family(make_trainer, "ppl", "linear", own=False)
    stack = Stack(trainers)
    stack.train_epoch()
    weights = [trainer.model[1].weight for trainer in trainers]  # type: ignore[index]
    assert all(not torch.allclose(weights[0], other) for other in weights[1:])
    assert not torch.allclose(*(trainer.risk.get_buffer("row_confidence") for trainer in trainers[:2]))


def test_estimators_with_parameters_of_their_own_share_a_stack(make_trainer: MakeTrainer) -> None:
    def members() -> list[Trainer]:
        problem = inputs_and_candidates()
        return [make_trainer(estimator("lw", leverage=w), problem=problem) for w in (2.0, 0.0, 1.0, 0.0)]

    together, alone = members(), members()
    (only,) = group(together)
    assert sorted(only.places) == [0, 1, 2, 3]
    outcomes = list(train_stacked(together, 3))
    records = train_alone(alone, 3)
    assert_same_trajectory(together, alone)
    risks = [row.metrics["train/risk"] for row in outcomes[-1] if isinstance(row, EpochRecord)]
    assert risks == pytest.approx([each[-1].metrics["train/risk"] for each in records], rel=1e-3)


@pytest.mark.parametrize("own", [False, True])
def test_schedules_are_followed_model_by_model(make_trainer: MakeTrainer, own: bool) -> None:
    together, alone = (family(make_trainer, "proden", "linear", own, scheduler="cosine", epochs=4) for _ in range(2))
    list(train_stacked(together, 4))
    train_alone(alone, 4)
    assert_same_trajectory(together, alone)


def test_plain_gradient_descent_without_momentum_stacks_too(make_trainer: MakeTrainer) -> None:
    together, alone = (family(make_trainer, "ppl", "linear", own=False) for _ in range(2))
    for trainer in together + alone:
        trainer.optimizer.param_groups[0]["momentum"] = 0.0
    assert why_not(together) is None
    list(train_stacked(together, 2))
    train_alone(alone, 2)
    assert_same_trajectory(together, alone)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_stack_can_be_stopped_and_resumed_to_the_same_bits(make_trainer: MakeTrainer, kind: str) -> None:
    whole = family(make_trainer, "ppl", kind, own=False)
    list(train_stacked(whole, 6))
    first = family(make_trainer, "ppl", kind, own=False)
    list(train_stacked(first, 3))
    saved = []
    for trainer in first:
        file = io.BytesIO()
        torch.save(trainer.state_dict(), file)
        saved.append(file)
    second = family(make_trainer, "ppl", kind, own=False)
    for trainer, file in zip(second, saved, strict=True):
        file.seek(0)
        trainer.load_state_dict(torch.load(file, weights_only=True))
    list(train_stacked(second, 6))
    for one, other in zip(whole, second, strict=True):
        for part in ("model", "risk"):
            for name, value in one.state_dict()[part].items():
                assert torch.equal(value, other.state_dict()[part][name])


def test_a_member_that_is_saved_takes_its_own_share_of_the_disk(make_trainer: MakeTrainer) -> None:
    sizes = []
    for trainers in (family(make_trainer, "ppl", "linear", own=False), [make_trainer("ppl")]):
        list(train_stacked(trainers, 1))
        file = io.BytesIO()
        torch.save(trainers[0].state_dict(), file)
        sizes.append(len(file.getvalue()))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


def test_a_stacked_model_can_go_on_alone(make_trainer: MakeTrainer) -> None:
    together, alone = (family(make_trainer, "ppl", "mlp", own=False) for _ in range(2))
    list(train_stacked(together, 2))
    list(together[1].epochs(4))
    list(alone[1].epochs(4))
    assert_same_trajectory(together[1:2], alone[1:2])


def test_a_model_that_diverges_gives_its_error_and_leaves_the_others_alone(make_trainer: MakeTrainer) -> None:
    x, candidates = inputs_and_candidates()

    def members() -> list[Trainer]:
        return [make_trainer("mcl", "mlp", problem=(x, candidates), lr=lr) for lr in (0.01, 1e30, 0.02)]

    together, alone = members(), members()
    outcomes = list(train_stacked(together, 3))
    assert all(isinstance(row[1], DivergedError) for row in outcomes)
    assert "lower --lr" in str(outcomes[0][1])
    assert str(outcomes[2][1]) == str(outcomes[0][1])  # the first place counts, not the latest
    train_alone([alone[0], alone[2]], 3)
    assert_same_trajectory([together[0], together[2]], [alone[0], alone[2]])


def test_evaluation_shares_a_pass_and_gives_the_same_scores(make_trainer: MakeTrainer) -> None:
    x, candidates = inputs_and_candidates()
    y = torch.randint(5, (203,), generator=torch.Generator().manual_seed(0))
    mask = candidates.mask()

    def score(logits: dict[str, Tensor], risk: Any) -> dict[str, Tensor]:
        return {
            "test/accuracy": accuracy(logits["test"], y),
            "validation/covering_rate": covering_rate(logits["validation"], mask),
        }

    evaluate = LogitEvaluation(inputs={"test": x, "validation": x}, score=score)
    together, alone = (family(make_trainer, "ppl", "mlp", own=False, evaluate=evaluate) for _ in range(2))
    forwards = []
    hook = nn.modules.module.register_module_forward_hook(lambda module, *_: forwards.append(type(module).__name__))
    try:
        outcomes = list(train_stacked(together, 2))
    finally:
        hook.remove()
    assert forwards.count("StackedNetwork") >= 2 * 2
    records = train_alone(alone, 2)
    for m, outcome in enumerate(outcomes[-1]):
        assert isinstance(outcome, EpochRecord)
        assert outcome.metrics == pytest.approx(records[m][-1].metrics, rel=1e-3)


def test_trainers_group_by_what_they_share(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [inputs_and_candidates(seed=seed) for seed in range(3)]
    grid = [make_trainer(problem=problems[s], seed=s, lr=lr) for s in range(3) for lr in (0.1, 0.01)]
    extra = [make_trainer(problem=problems[0], seed=9), make_trainer(problem=problems[1], seed=8)]
    other_network = [make_trainer(kind="mlp", problem=problems[0])]
    found = group([*grid, *extra, *other_network])
    assert [each.alone_because for each in found if each.places == (8,)] == ["there is nothing to stack it with"]
    everything = [tuple(range(8)), (8,)]
    assert sorted(tuple(sorted(each.places)) for each in found) == everything, "so few inputs: the fewest steps"
    monkeypatch.setattr(grouping, "SMALL_INPUTS", 0)
    found = group([*grid, *extra, *other_network])
    assert sorted(tuple(sorted(each.places)) for each in found) == [(0, 1), (2, 3), (4, 5), (6, 7), (8,)]


def test_other_sets_for_the_same_order_share_a_stack_if_the_same_examples_count(
    make_trainer: MakeTrainer,
) -> None:
    x, candidates = inputs_and_candidates()
    mask = candidates.mask()
    mask[0] = torch.tensor([True, False, False, False, False])
    altered = CandidateSets.from_mask(mask)
    mask[0] = True
    one_unlabelled = CandidateSets.from_mask(mask)
    sets = (candidates, altered, one_unlabelled, altered, one_unlabelled)
    trainers = [make_trainer(problem=(x, each)) for each in sets]
    assert sorted(tuple(sorted(each.places)) for each in group(trainers)) == [(0, 1, 3), (2, 4)]


def test_full_sets_are_skipped_by_every_model(make_trainer: MakeTrainer) -> None:
    def members() -> list[Trainer]:
        x, candidates = inputs_and_candidates()
        mask = candidates.mask()
        mask[::7] = True
        x[::7] = torch.nan
        sets = CandidateSets.from_mask(mask)
        return [make_trainer("ppl", "mlp", problem=(x, sets), lr=lr) for lr in (0.1, 0.01)]

    together, alone = members(), members()
    list(train_stacked(together, 2))
    train_alone(alone, 2)
    assert_same_trajectory(together, alone)


def test_groups_are_split_to_fit_into_memory(make_trainer: MakeTrainer) -> None:
    trainers = family(make_trainer, "ppl", "linear", own=False)
    from wsl_toolkit.training.stacking import models_that_fit

    per_model = 10**9 // models_that_fit(trainers[0], 10**9)
    assert [len(each.places) for each in group(trainers, memory=2 * per_model + 100)] == [2, 2]
    assert all(len(each.places) == 1 for each in group(trainers, memory=1))


def test_large_steps_do_not_pay_and_train_one_by_one(make_trainer: MakeTrainer) -> None:
    problem = inputs_and_candidates(n=64, d=4000)
    trainers = [make_trainer(kind="mlp", problem=problem, batch_size=3000, lr=lr) for lr in (0.1, 0.01)]
    reason = why_it_does_not_pay(trainers)
    assert reason is not None
    assert "efficient alone" in reason
    assert [each.alone_because for each in group(trainers)] == [reason, reason]


def test_trainers_at_different_epochs_are_not_stacked(make_trainer: MakeTrainer) -> None:
    trainers = family(make_trainer, "ppl", "linear", own=False)
    list(trainers[0].epochs(1))
    assert [0] in [sorted(each.places) for each in group(trainers)]
    assert why_not(trainers) == "data, network, batch size, estimator or epochs behind differ between the models"


def test_a_member_that_leaves_its_stack_goes_on_alone_as_it_would_have_from_the_start(
    make_trainer: MakeTrainer,
) -> None:
    together, alone = (family(make_trainer, "ppl", "linear", own=False) for _ in range(2))
    list(train_stacked(together, 2))
    others = [{name: value.clone() for name, value in each.model.state_dict().items()} for each in together[1:]]
    together[0].own_tensors()
    list(together[0].epochs(5))
    list(alone[0].epochs(5))
    assert_same_trajectory(together[:1], alone[:1])
    for each, before in zip(together[1:], others, strict=True):
        for name, value in each.model.state_dict().items():
            assert torch.equal(value, before[name]), "the one that left wrote into another's memory"
