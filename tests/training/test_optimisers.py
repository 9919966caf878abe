"""Optimisers and schedules by name."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.optimisers import OPTIMIZERS, SCHEDULERS, make_optimizer, make_scheduler
from wsl_toolkit.training.train import check_training


def test_sgd_has_momentum_unless_told_otherwise() -> None:
    parameters = list(nn.Linear(3, 2).parameters())
    assert make_optimizer("sgd", parameters, lr=0.1).defaults["momentum"] == 0.9
    assert make_optimizer("sgd", parameters, lr=0.1, momentum=0.0).defaults["momentum"] == 0.0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_listed_optimiser_lowers_a_convex_loss(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3, bias=False)  # one matrix, because muon takes nothing else
    optimizer = make_optimizer(name, model.parameters(), lr=0.01)
    x, y = torch.randn(64, 4), torch.randint(3, (64,))
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad"])
def test_the_fused_form_takes_the_steps_of_the_plain_one(name: str) -> None:
    torch.manual_seed(0)
    ours, plain = nn.Linear(5, 3), nn.Linear(5, 3)
    plain.load_state_dict(ours.state_dict())
    fused = make_optimizer(name, ours.parameters(), lr=0.05, weight_decay=1e-2)
    assert fused.defaults["fused"]
    options = {"momentum": 0.9} if name == "sgd" else {}
    reference = type(fused)(plain.parameters(), lr=0.05, weight_decay=1e-2, foreach=False, **options)  # type: ignore[call-arg]
    x = torch.randn(16, 5)
    for _ in range(10):
        for model, optimizer in ((ours, fused), (plain, reference)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, plain.weight)


def test_weight_decay_of_zero_is_zero_also_where_torch_decays_by_default() -> None:
    assert make_optimizer("adamw", nn.Linear(3, 2).parameters(), lr=0.1).defaults["weight_decay"] == 0.0


def test_an_unknown_optimiser_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'adamw'"):
        make_optimizer("adanw", nn.Linear(3, 2).parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="no optimiser is named 'lbfgs'"):
        make_optimizer("lbfgs", nn.Linear(3, 2).parameters(), lr=0.1)


def test_momentum_where_there_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match="adam knows no momentum"):
        make_optimizer("adam", nn.Linear(3, 2).parameters(), lr=0.1, momentum=0.9)


def test_weight_decay_where_there_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match="rprop knows no weight decay"):
        make_optimizer("rprop", nn.Linear(3, 2).parameters(), lr=0.1, weight_decay=0.1)


def test_values_that_torch_refuses_become_one_line() -> None:
    with pytest.raises(ConfigError, match="optimiser sgd"):
        make_optimizer("sgd", nn.Linear(3, 2).parameters(), lr=-1.0)


def learning_rates(name: str, epochs: int) -> list[float]:
    optimizer = make_optimizer("sgd", nn.Linear(3, 2).parameters(), lr=1.0)
    scheduler = make_scheduler(name, optimizer, epochs)
    rates = []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return rates


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("epochs", [1, 2, 3, 100])
def test_schedules_start_at_the_given_rate_and_never_reach_zero_or_rise(name: str, epochs: int) -> None:
    rates = learning_rates(name, epochs)
    assert rates[0] == pytest.approx(1.0)
    assert all(rate > 0 for rate in rates)
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates))


def test_schedules_have_their_closed_forms() -> None:
    assert learning_rates("linear", 4) == pytest.approx([1, 0.75, 0.5, 0.25])
    assert learning_rates("step", 8) == pytest.approx([1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01])
    assert learning_rates("cosine", 4)[2] == pytest.approx(0.5)
    assert learning_rates("exponential", 2)[1] == pytest.approx(0.1)


def test_an_unknown_schedule_is_an_error_with_the_nearest_name() -> None:
    optimizer = make_optimizer("sgd", nn.Linear(3, 2).parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="Did you mean 'cosine'"):
        make_scheduler("cosin", optimizer, 10)


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "rmsprop", "sgd"])
def test_every_optimiser_can_be_chosen_without_a_word_about_momentum(name: str) -> None:
    check_training(Training(optimizer=name, device="cpu"))
