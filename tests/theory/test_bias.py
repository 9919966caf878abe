"""The exact moments themselves: against a literal sum over sets, against sampling, and against wrong input."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from wsl_toolkit.errors import TheoryError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.theory.bias import (
    exact_moments,
    moments_under,
    set_probability,
    target_loss,
    true_confidence,
    true_confidence_moments,
)
from wsl_toolkit.theory.enumeration import all_sets, law

K = 4


def make(role: str, name: str, **values: object):
    return load_plugins().registry.create(role, name, values)


@pytest.fixture
def problem() -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(3)
    return {
        "posterior": torch.softmax(2 * torch.randn(5, K, generator=rng, dtype=torch.float64), -1),
        "logits": 2 * torch.randn(5, K, generator=rng, dtype=torch.float64),
        "x": torch.randn(5, 2, generator=rng),
    }


def test_the_moments_of_ppl_are_those_of_a_literal_sum_over_sets(problem):
    generator, estimator = make("generator", "mcl-skewed", alpha=0.6), make("estimator", "ppl")
    found = exact_moments(estimator, generator, **problem)
    for i in range(5):
        p, ell = problem["posterior"][i].tolist(), (-torch.log_softmax(problem["logits"][i], 0)).tolist()
        sizes = [0.6**k for k in range(K - 1)]
        first = second = 0.0
        for size in range(1, K):
            for s in itertools.combinations(range(K), size):
                mass = sum(p[j] for j in s)
                chance = mass * sizes[K - size - 1] / sum(sizes) / math.comb(K - 1, K - size)
                value = sum(p[j] / mass * ell[j] for j in s)
                first, second = first + chance * value, second + chance * value**2
        assert found.expectation[i].item() == pytest.approx(first, abs=1e-12)
        assert found.variance[i].item() == pytest.approx(second - first**2, abs=1e-10)
        assert found.risk[i].item() == pytest.approx(sum(a * b for a, b in zip(p, ell, strict=True)), abs=1e-12)


def test_the_exact_moments_agree_with_a_million_draws(problem):
    generator, estimator = make("generator", "mcl"), make("estimator", "average")
    found = exact_moments(estimator, generator, **problem)
    n = 10**6
    rng = torch.Generator().manual_seed(0)
    y = torch.multinomial(problem["posterior"][0], n, replacement=True, generator=rng)
    sets = generator.draw(problem["x"][:1].expand(n, -1), y, K, rng)
    losses = estimator.loss(problem["logits"][:1].expand(n, -1), sets, {})
    assert abs(losses.mean() - found.expectation[0]) < 5 * (found.variance[0] / n).sqrt()
    assert losses.var().item() == pytest.approx(found.variance[0].item(), rel=0.01)


def test_the_target_is_the_loss_that_the_user_chose(problem):
    logits = problem["logits"]
    p = torch.softmax(logits, -1)
    assert torch.allclose(target_loss(make("estimator", "ppl"), logits), -p.log())
    assert torch.allclose(target_loss(make("estimator", "ppl", base_loss="mae"), logits), 1 - p)
    assert torch.allclose(target_loss(make("estimator", "pcpl", base_loss="mae"), logits), 1 - p)


def test_supervised_is_unbiased_and_its_variance_is_that_of_the_label(problem):
    found = exact_moments(make("estimator", "supervised"), make("generator", "cl"), **problem)
    ell = -torch.log_softmax(problem["logits"], -1)
    variance = (problem["posterior"] * ell**2).sum(-1) - (problem["posterior"] * ell).sum(-1) ** 2
    assert found.bias.abs().max() < 1e-14
    assert torch.allclose(found.variance, variance)


def test_wrong_confidences_bias_ppl_and_true_ones_do_not(problem):
    estimator, generator = make("estimator", "ppl"), make("generator", "mcl-skewed")
    true = exact_moments(estimator, generator, **problem, confidence=problem["posterior"])
    flat = exact_moments(estimator, generator, **problem, confidence=torch.full((5, K), 1 / K))
    assert true.is_unbiased
    assert not flat.is_unbiased
    assert abs(flat.largest_bias) > 0.1


def test_a_constant_added_to_the_loss_is_seen_as_bias_of_that_size(problem):
    """The machinery must be able to fail: a wrong estimator has the bias that was put into it."""
    ppl = make("estimator", "ppl")

    class Shifted(type(ppl)):
        def loss(self, logits, candidates, state):
            return super().loss(logits, candidates, state) + 1e-6

        def target_loss(self, logits):
            return self.losses(logits)

    found = exact_moments(Shifted(), make("generator", "cl"), **problem)
    assert not found.is_unbiased
    assert found.is_upper_bound
    assert torch.allclose(found.bias, torch.full((5,), 1e-6, dtype=torch.float64), atol=1e-12)


def test_true_confidences_are_probabilities_on_the_set(problem):
    table = law(make("generator", "mcl"), problem["x"], K)
    r = true_confidence(table, problem["posterior"])
    assert torch.allclose(r.sum(-1), torch.ones_like(r[..., 0]))
    assert bool((r[:, ~all_sets(K)] == 0).all())
    weights = set_probability(table, problem["posterior"])
    assert torch.allclose(weights.sum(-1), torch.ones(5, dtype=torch.float64))
    without_x = {key: problem[key] for key in ("posterior", "logits")}
    assert true_confidence_moments(table, **without_x).bias.abs().max() < 1e-14


def test_wrong_shapes_and_wrong_probabilities_are_refused(problem):
    table = law(make("generator", "mcl"), problem["x"], K)
    ppl = make("estimator", "ppl")
    with pytest.raises(TheoryError, match=r"posterior must have shape \(5, 4\)"):
        moments_under(ppl, table, posterior=problem["posterior"][:2], logits=problem["logits"])
    with pytest.raises(TheoryError, match="each row sums to 1"):
        moments_under(ppl, table, posterior=problem["posterior"] * 2, logits=problem["logits"])
    with pytest.raises(TheoryError, match=r"sum to 0\.9 at x0, y=0"):
        moments_under(ppl, table * 0.9, posterior=problem["posterior"], logits=problem["logits"])


def test_a_law_in_single_precision_is_no_bias_and_a_small_bias_is_none_of_rounding(problem):
    table = law(make("generator", "mcl"), problem["x"], K)
    rounded = table.float().double()
    given = {key: problem[key] for key in ("posterior", "logits")}
    assert moments_under(make("estimator", "ppl"), rounded, **given).is_unbiased
    assert moments_under(make("estimator", "mcl"), rounded, **given).is_unbiased
    tilted = problem["posterior"] + 1e-4 * torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64)
    found = moments_under(make("estimator", "ppl"), rounded, **given, confidence=tilted)
    assert 0 < abs(found.largest_bias) < 1e-3
    assert not found.is_unbiased
