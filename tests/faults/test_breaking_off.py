"""An epoch that is broken off between two batches goes on to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.checkpoints import Checkpoints, Place
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.schedules import make_scheduler
from wsl_toolkit.training.trainer import Trainer

EPOCHS, STEPS = 3, 22


def small_trainer(estimator: str, scheduler: str = "step") -> Trainer:
    """A trainer with dropout and batch norm on 353 examples: 21 steps of 16 and one of 17 an epoch, always the same."""
    rng = torch.Generator().manual_seed(5)
    inputs = torch.randn(353, 9, generator=rng)
    mask = torch.rand(353, 5, generator=rng) < 0.4
    mask[torch.arange(353), torch.randint(5, (353,), generator=rng)] = True
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(9, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 5))
    optimizer = make_optimizer("sgd", model.parameters(), 0.1, 1e-4)
    return Trainer(
        model=model,
        risk=Risk(load_plugins().registry.create("estimator", estimator, {}), CandidateSets.from_mask(mask)),
        inputs=inputs,
        optimizer=optimizer,
        scheduler=make_scheduler(scheduler, optimizer, EPOCHS),
        batch_size=16,
        shuffle=torch.Generator().manual_seed(7),
        evaluate=lambda model, risk: {"test/first": predict(model, inputs)[0, 0]},
    )


def leaves(value: object) -> list[object]:
    """All leaves of nested values, in order."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def assert_same(one: object, other: object) -> None:
    """Demand the same leaves to the last bit."""
    pairs = list(zip(leaves(one), leaves(other), strict=True))
    assert sum(isinstance(left, torch.Tensor) for left, _ in pairs) > 5
    for left, right in pairs:
        assert torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


@pytest.mark.parametrize("estimator", ["ppl", "proden", "cc"])
@pytest.mark.parametrize("run_lengths", [(1,), (7,), (21,), (22,), (5, 1, 30, 9)])
def test_an_epoch_broken_off_at_any_step_goes_on_to_the_same_bits(
    estimator: str, run_lengths: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Chunks of 7 batches, so that breaks fall inside chunks, between them and at the end of an epoch.
    monkeypatch.setattr("wsl_toolkit.data.inputs.CHUNK_CELLS", 9 * 16 * 7)
    whole = small_trainer(estimator)
    expected = [record.metrics for record in whole.epochs(EPOCHS)]

    kept = Checkpoints(tmp_path)
    found, broken = [], 0
    for length in (*run_lengths, 10**6):
        left = length

        def stop() -> bool:
            nonlocal left
            left -= 1
            return left <= 0

        trainer = small_trainer(estimator)
        trainer.stop = stop
        saved = kept.newest()
        if saved is not None:
            trainer.load_state_dict(saved)
        found += [record.metrics for record in trainer.epochs(EPOCHS)]
        broken += trainer.epoch < EPOCHS
        kept.save(Place(epoch=trainer.epoch, step=trainer.step), trainer.state_dict())
        torch.manual_seed(99)  # another process would start anywhere
    assert broken >= len(run_lengths) - 1
    assert found == expected
    assert_same(trainer.state_dict(), whole.state_dict())


@pytest.mark.parametrize(
    ("optimizer", "scheduler"),
    [("adam", "none"), ("adamw", "cosine"), ("rmsprop", "step"), ("adagrad", "linear"), ("nadam", "exponential")],
)
def test_every_optimiser_and_schedule_survives_a_safe_reading(optimizer: str, scheduler: str, tmp_path: Path) -> None:
    def trainer() -> Trainer:
        made = small_trainer("ppl")
        made.optimizer = make_optimizer(optimizer, made.model.parameters(), 0.01)
        made._loop.optimizer = made.optimizer
        made.scheduler = make_scheduler(scheduler, made.optimizer, EPOCHS)
        return made

    whole, first, second = trainer(), trainer(), trainer()
    expected = [record.metrics for record in whole.epochs(EPOCHS)]
    found = [record.metrics for record in first.epochs(1)]
    kept = Checkpoints(tmp_path)
    kept.save(Place(epoch=1), first.state_dict())
    saved = kept.newest()
    assert saved is not None
    second.load_state_dict(saved)
    assert found + [record.metrics for record in second.epochs(EPOCHS)] == expected
