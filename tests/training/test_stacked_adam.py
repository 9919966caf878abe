"""Adam for many models at once, and schedules that are stepped after each batch: alone, in stacks, and resumed."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch
from small_problems import MakeTrainer, inputs_and_candidates, train_stacked
from torch import Tensor

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.schedules import make_scheduler
from wsl_toolkit.training.stacking import Stack, group
from wsl_toolkit.training.stacking.optimiser import stacked_optimiser
from wsl_toolkit.training.trainer import Trainer

CYCLED: dict[str, Any] = {"scheduler": "one-cycle", "schedule": {"every": "step", "momentum": "cycled"}}


def family(make: MakeTrainer, kind: str, *, own: bool, optimizer: str, **options: Any) -> list[Trainer]:
    """Three models with rates of their own; with `own`, also data, order and initialisation."""
    shared = inputs_and_candidates()
    return [
        make(
            "proden",
            kind,
            problem=inputs_and_candidates(seed=m) if own else shared,
            optimizer=optimizer,
            lr=lr,
            weight_decay=10.0 ** -(m + 2),
            seed=m if own else 0,
            **options,
        )
        for m, lr in enumerate((0.02, 0.01, 0.003))
    ]


def tensors(trainer: Trainer) -> dict[str, Tensor]:
    state = trainer.state_dict()
    found = {f"{part}.{name}": value for part in ("model", "risk") for name, value in state[part].items()}
    for number, kept in state["optimizer"]["state"].items():
        found |= {f"optimizer.{number}.{name}": value for name, value in kept.items()}
    return found


def saved(trainer: Trainer) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(trainer.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def assert_alike(some: list[Trainer], others: list[Trainer], **tolerance: float) -> None:
    for one, other in zip(some, others, strict=True):
        ours, theirs = tensors(one), tensors(other)
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            torch.testing.assert_close(value, theirs[name], **tolerance, msg=name)
        assert one.optimizer.param_groups[0]["lr"] == other.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("schedule", [{}, CYCLED], ids=["constant", "one-cycle"])
@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_stack_takes_the_steps_of_each_models_own_adam(
    make_trainer: MakeTrainer, optimizer: str, kind: str, own: bool, schedule: dict[str, Any]
) -> None:
    together, alone = (family(make_trainer, kind, own=own, optimizer=optimizer, epochs=3, **schedule) for _ in range(2))
    assert [len(each.places) for each in group(together)] == [3]
    outcomes = list(train_stacked(together, 3))
    records = [list(trainer.epochs(3)) for trainer in alone]
    assert_alike(together, alone, rtol=1e-3, atol=1e-4)
    for m, record in enumerate(outcomes[-1]):
        assert isinstance(record, EpochRecord)
        assert record.metrics["train/risk"] == pytest.approx(records[m][-1].metrics["train/risk"], rel=1e-3)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_stacked_steps_are_those_of_the_formula(name: str, decay: float) -> None:
    """Written out in double precision, number by number, with rates and betas that change in between."""
    start = torch.tensor([[0.5, -2.0, 0.0], [1.0, 3.0, -1e-3]], dtype=torch.float64)
    models = [torch.nn.Parameter(row.clone()) for row in start]
    members = [make_optimizer(name, [w], lr, decay) for w, lr in zip(models, (0.1, 0.02), strict=True)]
    stacked = torch.nn.Parameter(start.clone())
    optimiser = stacked_optimiser({"w": stacked}, members, [{"w": w} for w in models])
    rng = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 2, 3, generator=rng, dtype=torch.float64)
    gradients[:, 0, 0] = 0
    w, mean, square = start.tolist(), [[0.0] * 3, [0.0] * 3], [[0.0] * 3, [0.0] * 3]
    second, eps = 0.999, 1e-8
    for t, gradient in enumerate(gradients, start=1):
        first = 0.9 if t < 4 else 0.85
        rates = (0.1, 0.02) if t < 4 else (0.3, 0.06)
        for member, lr in zip(members, rates, strict=True):
            member.param_groups[0] |= {"lr": lr, "betas": (first, second)}
        optimiser.read_rates()
        stacked.grad = gradient.clone()
        optimiser.step()
        for i in range(2):
            for j in range(3):
                g = float(gradient[i, j])
                if name == "adamw":
                    w[i][j] *= 1 - rates[i] * decay
                else:
                    g += decay * w[i][j]
                mean[i][j] = first * mean[i][j] + (1 - first) * g
                square[i][j] = second * square[i][j] + (1 - second) * g * g
                upper, lower = mean[i][j] / (1 - first**t), math.sqrt(square[i][j] / (1 - second**t))
                w[i][j] -= rates[i] * upper / (lower + eps)
        torch.testing.assert_close(stacked.detach(), torch.tensor(w, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    for member, parameter in zip(members, models, strict=True):
        assert float(member.state[parameter]["step"]) == 6


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_stack_of_adams_goes_on_to_the_same_bits_from_the_middle_of_an_epoch(
    make_trainer: MakeTrainer, kind: str
) -> None:
    whole, first, second = (
        family(make_trainer, kind, own=True, optimizer="adam", epochs=4, **CYCLED) for _ in range(3)
    )
    list(train_stacked(whole, 4))
    stack = Stack(first)
    stack.train_epoch()
    steps = iter(range(100))
    assert stack.train_epoch(stop=lambda: next(steps) >= 5) is None
    assert 0 < first[0].step < first[0].steps_per_epoch
    for trainer, stopped in zip(second, first, strict=True):
        trainer.load_state_dict(saved(stopped))
    list(train_stacked(second, 4))
    assert_alike(second, whole, rtol=0, atol=0)


def test_a_model_alone_goes_on_to_the_same_bits_from_the_middle_of_its_cycle(make_trainer: MakeTrainer) -> None:
    whole, first, second = (make_trainer("ppl", "mlp", optimizer="adam", epochs=4, **CYCLED) for _ in range(3))
    list(whole.epochs(4))
    list(first.epochs(1))
    steps = iter(range(100))
    assert first.train_epoch(stop=lambda: next(steps) >= 2) is None
    second.load_state_dict(saved(first))
    list(second.epochs(4))
    assert_alike([second], [whole], rtol=0, atol=0)


def test_a_member_leaves_its_stack_with_an_adam_of_its_own(make_trainer: MakeTrainer) -> None:
    together, alone = (family(make_trainer, "mlp", own=True, optimizer="adam") for _ in range(2))
    list(train_stacked(together, 2))
    together[1].own_tensors()
    list(together[1].epochs(4))
    list(alone[1].epochs(4))
    assert_alike([together[1]], [alone[1]], rtol=1e-3, atol=1e-4)


def test_one_cycle_by_steps_is_torchs_own(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(optimizer="adam", lr=0.01, epochs=5, **CYCLED)
    steps = trainer.steps_per_epoch
    assert steps == math.ceil(203 / 32)
    other = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.01)
    reference = torch.optim.lr_scheduler.OneCycleLR(other, max_lr=0.01, epochs=5, steps_per_epoch=steps)
    wanted, seen = [], []
    for _ in range(5 * steps):
        wanted.append((other.param_groups[0]["lr"], other.param_groups[0]["betas"][0]))
        other.step()
        reference.step()
    follow = trainer._loop.after_step
    assert follow is not None

    def after_step() -> None:
        rates = trainer.optimizer.param_groups[0]
        seen.append((rates["lr"], rates["betas"][0]))  # with which the step was taken
        follow()

    trainer._loop.after_step = after_step
    list(trainer.epochs(5))
    torch.testing.assert_close(torch.tensor(seen), torch.tensor(wanted))
    assert (seen[0][0], seen[-1][0]) == (pytest.approx(4e-4), pytest.approx(4e-8))
    assert max(rate for rate, _ in seen) == pytest.approx(0.01, rel=0.01)


def test_a_schedule_by_epochs_leaves_rates_alone_within_an_epoch(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(optimizer="adam", lr=0.01, epochs=5, scheduler="one-cycle")
    assert not trainer.by_step
    first = trainer.optimizer.param_groups[0]["lr"]
    steps = iter(range(100))
    trainer.train_epoch(stop=lambda: next(steps) >= 4)
    assert trainer.optimizer.param_groups[0]["lr"] == first
    trainer.train_epoch()
    assert trainer.optimizer.param_groups[0]["lr"] > first


def test_a_momentum_that_is_not_there_cannot_be_cycled() -> None:
    optimizer = make_optimizer("adagrad", [torch.nn.Parameter(torch.zeros(1))], 0.1)
    with pytest.raises(ConfigError, match="one-cycle: optimiser adagrad has no momentum to cycle"):
        make_scheduler("one-cycle", optimizer, 5, {"momentum": "cycled"})
