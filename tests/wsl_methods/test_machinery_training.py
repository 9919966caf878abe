"""Methods with more machinery learn, in images and in tables, and go on from a checkpoint to the same bits.

Their schedules are shortened, so that warm-ups end and everything that a method does is done within a few epochs.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import wsl_toolkit as wsl
from wsl_toolkit import CandidateSets, Estimator
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.train import TrainingJob, train
from wsl_toolkit.training.trainer import Trainer

SMALL = {"queue": 256, "width": 16}
SHORT: dict[str, dict[str, Any]] = {
    "pico": {"warm_up": 1, "ramp": 4, **SMALL},
    "cr-dpll": {"ramp": 3},
    "alim": {"start": 2, "ramp": 4, **SMALL},
    "pico-plus": {"warm_up": 1, "ramp": 4, "reliable_share": 0.8, "neighbours_from": 2, **SMALL},
    "able": {"width": 16},
    "pop": {"warm_up": 1, "window": 2, "threshold": 0.01},
    "fredis": {"warm_up": 1, "interval": 2, "entry": 0.01, "changes": 50},
    "idgp": {"warm_up": 2, "ramp": 5},
    "dirk": {"warm_up": 1, "network_decay": 0.9, **SMALL},
    "valen": {"warm_up": 2},
    "cel": {"prototypes_from": 2, "width": 8},
    "crosel": {"warm_up": 2, "history": 2, "threshold": 0.3},
    "gfws": {},
    "htc": {"ramp": 3, "fusion_ramp": 4},
    "papi": {"ramp": 4, "width": 16},
    "records-corr": {},
    "records-proden": {},
    "vi-pll": {"warm_up": 3, "hidden": 16, "latent": 4},
    "wsc": {"ramp": 4, "width": 16},
    "solar": {"ramp": 3, "queue": 256, "prior_epochs": 2},
}

UNSEEN = ("valen", "records-proden", "vi-pll")
"""Methods without augmented views."""

MLP = load_plugins().registry.create("backbone", "mlp", {"widths": [64]})


def method(name: str) -> Estimator:
    made: Estimator = load_plugins().registry.create("estimator", name, SHORT[name])
    return made


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """Handwritten digits, each with its own class and any other with probability 0.3."""
    registry = load_plugins().registry
    data = registry.get("dataset", "digits")().load(tmp_path_factory.mktemp("none"))
    sets = registry.create("generator", "flip", {"q": 0.3})
    return make_problem(data, sets, seed=0, validation=0.0, test=0.3)


def accuracy(problem: Problem, estimator: Estimator, training: Training) -> float:
    job = TrainingJob(problem=problem, estimator=estimator, backbone=MLP, training=training, seed=0)
    return train([job])[0].final["test/accuracy"]


@pytest.mark.parametrize("name", SHORT)
def test_it_learns_digits(name: str, digits: Problem) -> None:
    estimator = method(name) if name in UNSEEN else attrs.evolve(method(name), augmentation="none")
    training = Training(epochs=8, batch_size=64, lr=0.05)
    assert accuracy(digits, estimator, training) > 0.9


@pytest.mark.parametrize("name", [name for name in SHORT if name not in UNSEEN])
def test_it_learns_from_views_of_digits_though_so_small_ones_suffer_from_them(name: str, digits: Problem) -> None:
    training = Training(epochs=4, batch_size=128, lr=0.1)
    assert accuracy(digits, method(name), training) > 0.5


def convolutional() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(16, 4))


def around(estimator: Estimator, build: Callable[[], nn.Module]) -> nn.Module:
    """What the method trains: a network, or two of them, with its machinery."""
    return estimator.extend_two(build) if "two_networks" in estimator.needs else estimator.extend(build())


def small_trainer(name: str) -> Trainer:
    """Fifty small colour images and a convolutional network with batch norm and dropout."""
    draws = torch.Generator().manual_seed(1)
    estimator = method(name)
    mask = torch.rand(50, 4, generator=draws) < 0.5
    mask[:, 0] |= ~mask.any(1)
    mask[mask.all(1), 3] = False
    torch.manual_seed(2)
    model = around(estimator, convolutional)
    torch.manual_seed(3)
    return Trainer(
        model=model,
        risk=Risk(estimator, CandidateSets.from_mask(mask)),
        inputs=torch.randn(50, 3, 8, 8, generator=draws),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        scheduler=None,
        batch_size=16,
        shuffle=torch.Generator().manual_seed(4),
        evaluate=lambda model, risk: {},
    )


@pytest.mark.parametrize("name", SHORT)
def test_broken_off_between_two_batches_it_goes_on_to_the_same_bits(name: str) -> None:
    whole = small_trainer(name)
    list(whole.epochs(5))
    broken = small_trainer(name)
    list(broken.epochs(3))
    calls = iter(range(100))
    broken.stop = lambda: next(calls) >= 1
    assert list(broken.epochs(5)) == []
    assert 0 < broken.step < 4, "in the middle of the fourth epoch"
    file = io.BytesIO()
    torch.save(broken.state_dict(), file)
    file.seek(0)
    resumed = small_trainer(name)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    list(resumed.epochs(5))
    ours, theirs = whole.state_dict(), resumed.state_dict()
    for part in ("model", "risk"):
        for key, value in ours[part].items():
            assert torch.equal(value, theirs[part][key]), f"{part}: {key}"


@pytest.mark.parametrize("name", SHORT)
def test_it_says_that_it_cannot_be_stacked_and_makes_no_promise(name: str) -> None:
    estimator = method(name)
    assert not estimator.stackable
    assert estimator.kind.value == "heuristic"
    assert estimator.citation


@pytest.mark.parametrize("name", [name for name in SHORT if name not in UNSEEN])
def test_without_augmentation_every_view_is_the_example_itself(name: str) -> None:
    estimator = load_plugins().registry.create("estimator", name, {**SHORT[name], "augmentation": "none"})
    model = around(estimator, lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)))
    inputs = torch.randn(5, 6)
    logits, extras = model.look(inputs)
    assert torch.equal(logits, model.network(inputs))
    for extra in ("view_logits", "third_logits", "momentum_logits", "fixed_logits", "fixed_view_logits"):
        assert extra not in extras or torch.equal(extras[extra], logits)


def test_the_network_is_told_the_shared_state_after_each_epoch_and_resumes_with_it() -> None:
    trainer = small_trainer("htc")
    uniform = trainer.model.get_buffer("share").clone()
    list(trainer.epochs(1))
    told = trainer.model.get_buffer("share").clone()
    assert torch.equal(told, trainer.risk.get_buffer("shared_share"))
    assert not torch.equal(told, uniform)
    resumed = small_trainer("htc")
    resumed.load_state_dict(trainer.state_dict())
    assert torch.equal(resumed.model.get_buffer("share"), told)


def test_so_it_is_in_a_loop_of_ones_own() -> None:
    sets = CandidateSets.from_mask(torch.tensor([[True, True, False], [True, False, False], [False, True, True]]))
    risk = wsl.PartialLabelRisk(method("htc"), sets)
    model = risk.extend(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    assert "call risk.end_epoch(model) after each epoch" in risk.describe()
    x, index = torch.randn(3, 6), torch.arange(3)
    output = model(x)
    risk(output, index).backward()
    risk.after_step(model, x, output, index)
    risk.end_epoch(model)
    assert torch.equal(model.get_buffer("share"), risk.get_buffer("shared_share"))
