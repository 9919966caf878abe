"""Theorem 4's ingredients, each against what it bounds."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from wsl_toolkit.errors import TheoryError
from wsl_toolkit.losses import cross_entropy
from wsl_toolkit.theory.bound import (
    CROSS_ENTROPY_LIPSCHITZ,
    estimation_error_bound,
    largest_cross_entropy,
    linear_bound,
    linear_complexity,
)


def test_the_bound_is_the_formula():
    found = estimation_error_bound([0.1, 0.2, 0.05], lipschitz=1.5, upper=3.0, n=200, delta=0.1)
    assert found.complexity == pytest.approx(4 * math.sqrt(2) * 1.5 * 0.35)
    assert found.deviation == pytest.approx(2 * 3.0 * math.sqrt(math.log(20) / 400))
    assert found.total == pytest.approx(found.complexity + found.deviation)


def test_the_linear_bound_falls_as_one_over_the_root_of_n():
    bounds = [linear_bound(num_classes=4, n=n, radius=2, norm=3).total for n in (100, 10_000)]
    assert bounds[0] / bounds[1] == pytest.approx(10)


def test_the_linear_bound_is_eight_classes_times_b_lambda_over_root_n_and_the_deviation():
    found = linear_bound(num_classes=5, n=400, radius=2, norm=3, delta=0.05)
    assert found.complexity == pytest.approx(8 * 5 * 2 * 3 / 20)
    upper = math.log(1 + 4 * math.exp(12))
    assert found.deviation == pytest.approx(2 * upper * math.sqrt(math.log(40) / 800))


@pytest.mark.parametrize("num_classes", [2, 4, 50])
def test_the_largest_cross_entropy_is_attained_and_never_exceeded(num_classes: int):
    a = 1.7
    worst = torch.full((num_classes,), a, dtype=torch.float64)
    worst[0] = -a
    upper = largest_cross_entropy(num_classes, a)
    assert cross_entropy(worst)[0].item() == pytest.approx(upper)
    anywhere = a * (2 * torch.rand(10_000, num_classes, generator=torch.Generator().manual_seed(0)) - 1)
    assert float(cross_entropy(anywhere).max()) <= upper + 1e-6


def test_large_norms_do_not_overflow():
    assert largest_cross_entropy(10, 1e4) == pytest.approx(2e4 + math.log(9))


def test_cross_entropy_is_root_two_lipschitz_and_no_smaller_constant_will_do():
    rng = torch.Generator().manual_seed(0)
    f = 20 * torch.randn(2000, 5, generator=rng, dtype=torch.float64)
    gradients = torch.softmax(f, -1) - torch.nn.functional.one_hot(torch.randint(5, (2000,), generator=rng), 5)
    lengths = gradients.norm(dim=-1)
    assert float(lengths.max()) <= CROSS_ENTROPY_LIPSCHITZ
    assert float(lengths.max()) > CROSS_ENTROPY_LIPSCHITZ - 1e-3


def test_the_complexity_of_a_linear_class_stays_below_its_bound_over_all_signs():
    """E_σ sup_w (1/n) Σ σ_i w·x_i = (Λ/n) E‖Σ σ_i x_i‖, by enumerating all 2^n signs."""
    n, radius, norm = 10, 2.0, 3.0
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = radius * x / x.norm(dim=-1, keepdim=True)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=n)), dtype=torch.float64)
    exact = norm / n * float((signs @ x).norm(dim=-1).mean())
    bound = linear_complexity(n=n, radius=radius, norm=norm)
    assert 0.8 * bound < exact <= bound


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": 0}, "at least one example"),
        ({"delta": 1.0}, "probability between 0 and 1"),
        ({"norm": -1.0}, "not negative"),
        ({"num_classes": 1}, "at least 2 classes"),
    ],
)
def test_impossible_requests_are_refused(values: dict[str, float], message: str):
    with pytest.raises(TheoryError, match=message):
        linear_bound(**{"num_classes": 3, "n": 10, "radius": 1.0, "norm": 1.0, **values})
