"""Optimisers and schedules by name."""

from __future__ import annotations

import copy
import inspect
import itertools
import subprocess
import sys
from typing import Any

import attrs
import pytest
import torch
from torch import nn

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.training.build import check_training
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.optimisers import OPTIMIZERS, make_optimizer, options_class, stepped_at_once
from wsl_toolkit.training.schedules import SCHEDULES, make_scheduler


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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_has_the_bits_of_torchs_own(name: str) -> None:
    torch.manual_seed(0)
    ours, theirs = nn.Linear(5, 3, bias=False), nn.Linear(5, 3, bias=False)
    theirs.load_state_dict(ours.state_dict())
    made = make_optimizer(name, ours.parameters(), lr=0.05)
    settings = {key: value for key, value in made.defaults.items() if key in inspect.signature(type(made)).parameters}
    reference = type(made)(theirs.parameters(), **settings)
    assert vars(reference).get("step") is None, "the reference must step as torch does"
    x = torch.randn(16, 5)
    for _ in range(3):
        for model, optimizer in ((ours, made), (theirs, reference)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert torch.equal(ours.weight, theirs.weight)
    assert ours.weight.requires_grad


def test_training_on_the_digits_imports_neither_torchs_compiler_nor_scikit_learn() -> None:
    script = """
import sys
import wsl_toolkit as wsl

assert len(wsl.train("digits", epochs=2, track=False).history) == 2
print([name for name in ("torch._dynamo", "sympy", "sklearn", "mlflow", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"


def test_weight_decay_of_zero_is_zero_also_where_torch_decays_by_default() -> None:
    assert make_optimizer("adamw", nn.Linear(3, 2).parameters(), lr=0.1).defaults["weight_decay"] == 0.0


def test_an_unknown_optimiser_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'adamw'"):
        make_optimizer("adanw", nn.Linear(3, 2).parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="no optimiser is named 'lbfgs'"):
        make_optimizer("lbfgs", nn.Linear(3, 2).parameters(), lr=0.1)


def test_momentum_where_there_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match="adam has no momentum setting"):
        make_optimizer("adam", nn.Linear(3, 2).parameters(), lr=0.1, momentum=0.9)


def test_weight_decay_where_there_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match="rprop has no weight decay setting"):
        make_optimizer("rprop", nn.Linear(3, 2).parameters(), lr=0.1, weight_decay=0.1)


def test_values_that_torch_refuses_become_one_line() -> None:
    with pytest.raises(ConfigError, match="optimiser sgd"):
        make_optimizer("sgd", nn.Linear(3, 2).parameters(), lr=-1.0)


def learning_rates(name: str, epochs: int, warmup: int = 0, **options: Any) -> list[float]:
    optimizer = make_optimizer("sgd", nn.Linear(3, 2).parameters(), lr=1.0)
    scheduler = make_scheduler(name, optimizer, epochs, options, warmup)
    rates = []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return rates


@pytest.mark.parametrize("name", sorted(SCHEDULES.keys() - {"one-cycle"}))
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


def test_one_cycle_rises_to_the_given_rate_and_falls_to_almost_nothing() -> None:
    rates = learning_rates("one-cycle", 100)
    top = rates.index(max(rates))
    assert rates[0] == pytest.approx(0.04)
    assert max(rates) == pytest.approx(1.0, abs=0.01)
    assert 25 <= top <= 35
    assert all(later > earlier for earlier, later in itertools.pairwise(rates[: top + 1]))
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[top:]))
    assert 0 < rates[-1] < 0.01


@pytest.mark.parametrize("epochs", [1, 2, 3, 4])
def test_one_cycle_fits_the_shortest_runs(epochs: int) -> None:
    assert all(0 < rate <= 1 for rate in learning_rates("one-cycle", epochs))


def test_options_of_schedules_do_what_they_say() -> None:
    assert learning_rates("step", 4, gamma=0.5, milestones=(0.5,)) == pytest.approx([1, 1, 0.5, 0.5])
    assert learning_rates("exponential", 3, gamma=0.5) == pytest.approx([1, 0.5, 0.25])
    assert learning_rates("linear", 4, final=0.5) == pytest.approx([1, 0.875, 0.75, 0.625])
    assert min(learning_rates("cosine", 50, final=0.2)) >= 0.2


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_a_warm_up_rises_in_equal_steps_before_the_schedule_begins(name: str) -> None:
    rates = learning_rates(name, 13, warmup=3)
    after = learning_rates(name, 10)
    start = after[0]
    assert rates[:3] == pytest.approx([start / 4, start / 2, 3 * start / 4])
    assert rates[3:] == pytest.approx(after)


def test_a_wrong_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'nesterov'"):
        check_training(Training(device="cpu", optimizer_options={"nestrov": True}))
    with pytest.raises(ConfigError, match="unknown parameter 'gama'"):
        check_training(Training(device="cpu", scheduler="step", scheduler_options={"gama": 0.1}))
    with pytest.raises(ConfigError, match="leaves none of 5 epochs"):
        check_training(Training(device="cpu", epochs=5, warmup_epochs=5))


def test_options_of_an_optimiser_reach_torch() -> None:
    made = make_optimizer("sgd", nn.Linear(3, 2).parameters(), lr=0.1, options={"nesterov": True})
    assert made.defaults["nesterov"] is True
    made = make_optimizer("adam", nn.Linear(3, 2).parameters(), lr=0.1, options={"betas": [0.5, 0.9], "eps": 1e-6})
    assert (made.defaults["betas"], made.defaults["eps"]) == ((0.5, 0.9), 1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_has_its_options_with_torch_defaults(name: str) -> None:
    optimizer = make_optimizer(name, nn.Linear(4, 3, bias=False).parameters(), lr=0.01)
    for option, value in attrs.asdict(options_class(name)()).items():
        assert optimizer.defaults.get(option, value) == value


def test_an_optimiser_is_refused_for_the_network_that_it_cannot_train() -> None:
    check_training(Training(optimizer="muon", device="cpu"))
    make_optimizer("muon", nn.Linear(4, 3, bias=False).parameters(), lr=0.01)
    with pytest.raises(ConfigError, match="muon cannot train this network"):
        make_optimizer("muon", nn.Linear(4, 3).parameters(), lr=0.01)


@pytest.mark.parametrize(
    ("momentum", "options"), [(0.0, {}), (0.9, {}), (0.9, {"nesterov": True}), (0.9, {"dampening": 0.5})]
)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_sgd_stepped_at_once_has_the_bits_of_torchs_own_step(
    momentum: float, options: dict[str, Any], weight_decay: float
) -> None:
    torch.manual_seed(0)
    starts = [torch.randn(7, 5), torch.randn(7), torch.randn(3)]
    ours, theirs = ([nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    own = make_optimizer("sgd", ours, 0.1, weight_decay, momentum, options)
    plain = torch.optim.SGD(theirs, lr=0.1, weight_decay=weight_decay, momentum=momentum, fused=True, **options)
    for step in range(6):
        for one, other in zip(ours[:2], theirs[:2], strict=True):  # the last one has no part in the loss
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        own.param_groups[0]["lr"] = plain.param_groups[0]["lr"] = 0.1 / (step + 1)
        plain.step()
        if step < 3:
            own.step()
        else:
            with torch.no_grad():
                assert stepped_at_once(own)
        if step == 3:
            for optimizer in (own, plain):
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other), step
    assert torch.equal(ours[2], starts[2])
