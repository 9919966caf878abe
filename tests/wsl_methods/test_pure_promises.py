"""What the methods whose loss is a function of logits and state promise: unbiasedness, order, and CPE's decoding."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pure_literals as literal
import pytest
import torch
from torch import Tensor

from wsl_toolkit import Estimator, Setting
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.testing.distributions import random_distribution, random_posterior
from wsl_toolkit.theory.bias import exact_moments, set_probability
from wsl_toolkit.theory.enumeration import all_sets, set_index

REGISTRY = load_plugins().registry


def make(name: str, **values: Any) -> Estimator:
    return REGISTRY.create("estimator", name, values)


@pytest.mark.parametrize("ratio", [0.3, 0.8, 1.7])
def test_the_transition_risk_is_unbiased_under_its_own_process(ratio: float) -> None:
    rng = torch.Generator().manual_seed(2)
    generator = REGISTRY.create("generator", "cl-biased", {"matrix": "skewed", "ratio": ratio})
    posterior = random_posterior(20, 4, rng)
    logits = torch.randn(20, 4, generator=rng, dtype=torch.float64)
    at = {"posterior": posterior, "logits": logits, "x": torch.zeros(20, 2)}
    assert exact_moments(make("cl-t", matrix="skewed", ratio=ratio), generator, **at).is_unbiased
    assert not exact_moments(make("cl-t"), generator, **at).is_unbiased


@pytest.mark.parametrize("setting", [Setting.CL, Setting.PCPL, Setting.MCL])
def test_scarce_is_unbiased_with_the_right_rates(setting: Setting) -> None:
    rng = torch.Generator().manual_seed(3)
    table, posterior = random_distribution(setting, 15, 4, rng), random_posterior(15, 4, rng)
    logits = torch.randn(15, 4, generator=rng, dtype=torch.float64)
    _assert_scarce_unbiased(table, posterior, logits)


def test_scarce_is_unbiased_where_each_class_is_excluded_at_a_rate_of_its_own() -> None:
    """Selected completely at random, and outside MCL and PPL: how readily a class is excluded depends on the class."""
    rng = torch.Generator().manual_seed(4)
    table = law_with_rates([0.2, 0.5, 0.7, 0.9]).expand(15, -1, -1)
    logits = torch.randn(15, 4, generator=rng, dtype=torch.float64)
    _assert_scarce_unbiased(table, random_posterior(15, 4, rng), logits)


def law_with_rates(rates: list[float]) -> Tensor:
    """Return p(s|y) with p(k ∈ s̄ | y) = rates[k] for all y ≠ k, in which no set is full, [1, 2^K - 2, K].

    For each y the wrong classes lie as arcs one after the other around a circle, which they cover; a point of it is
    drawn, and the classes whose arcs hold it are excluded.
    """
    k = len(rates)
    table = torch.zeros(2**k - 2, k, dtype=torch.float64)
    for y in range(k):
        wrong = [j for j in range(k) if j != y]
        starts = {j: sum(rates[i] for i in wrong[: wrong.index(j)]) for j in wrong}
        cuts = sorted({0.0, 1.0, *((v + e) % 1 for j, v in starts.items() for e in (0.0, rates[j]))})
        for low, high in itertools.pairwise(cuts):
            excluded = [j for j in wrong if ((low + high) / 2 - starts[j]) % 1 < rates[j]]
            table[int(set_index(torch.tensor([[j not in excluded for j in range(k)]]))), y] += high - low
    return table.unsqueeze(0)


def _assert_scarce_unbiased(table: Tensor, posterior: Tensor, logits: Tensor) -> None:
    sets, weights = all_sets(4), set_probability(table, posterior)
    n = len(posterior)
    outside = (~sets).double()
    # c_k = p(k ∈ s̄ | y) for any y ≠ k: under these laws the same for all of them.
    given_y = torch.einsum("nsy,sk->nyk", table, outside)
    rates = given_y.sum(1)[0] / 3
    torch.testing.assert_close(given_y, (rates * (1 - torch.eye(4, dtype=torch.float64))).expand(n, -1, -1))
    estimator = make("scarce", correction="none")
    losses = estimator.loss(
        logits.repeat_interleave(len(sets), 0), sets.repeat(n, 1), {"rate": rates, "wrong": torch.ones(4)}
    ).view(n, -1)
    rise, fall = torch.nn.functional.softplus(-logits), torch.nn.functional.softplus(logits)
    risk = (posterior * rise + (1 - posterior) * fall).sum(-1)
    torch.testing.assert_close((weights * losses).sum(-1), risk)


def test_scarce_estimates_priors_where_all_classes_are_excluded_at_one_rate() -> None:
    rng = torch.Generator().manual_seed(5)
    prior = torch.tensor([0.5, 0.3, 0.15, 0.05])
    y = torch.multinomial(prior, 200_000, replacement=True, generator=rng)
    generator = REGISTRY.create("generator", "mcl-skewed", {})
    sets = generator.sample(torch.zeros(len(y), 1), y, 4, rng)
    state = make("scarce", prior="estimated").init_shared(sets)
    torch.testing.assert_close(1 - state["wrong"], prior, atol=5e-3, rtol=0)
    assert float(state["rate"].std()) < 5e-3


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("k", [3, 4, 10, 40])
def test_the_discriminative_loss_grows_with_the_excluded_class_own_probability(k: int, weighted: bool) -> None:
    """The reason why it is consistent: swapping two logits so that the excluded class has less lowers the loss."""
    rng = torch.Generator().manual_seed(k)
    f = 6 * torch.randn(500, k, generator=rng, dtype=torch.float64)
    every = torch.nn.functional.one_hot(torch.arange(k), k).bool().unsqueeze(0).expand(len(f), k, k)
    estimator = make("l-w", weighted=weighted)
    losses = estimator.loss(f.unsqueeze(1).expand(-1, k, -1), ~every, {})
    order = f.argsort(1)
    assert bool((losses.gather(1, order).diff(dim=1) >= -1e-12).all())


def test_cpe_decodes_the_right_class_from_exact_estimates() -> None:
    """Where the network is exactly right about p(ȳ|x), the row of Q nearest to it is the class that is certain."""
    from wsl_methods.cpe_networks import Decoded

    k = 5
    table = torch.tensor(literal.skewed(k), dtype=torch.float64)
    identity = Decoded(torch.nn.Identity(), table, negated=True).eval()
    log_rows = table.clamp(min=1e-30).log().float()
    assert identity(-log_rows).argmax(1).tolist() == list(range(k))  # p̄ = Q_k: class k is certain
    through = Decoded(torch.nn.Identity(), table).eval()
    assert through(50 * torch.eye(k)).argmax(1).tolist() == list(range(k))


def test_cpe_decoding_under_the_uniform_matrix_is_the_largest_logit() -> None:
    from wsl_methods.cpe_networks import Decoded

    rng = torch.Generator().manual_seed(6)
    for k in (2, 3, 10):
        table = torch.tensor(literal.uniform(k))
        logits = 3 * torch.randn(500, k, generator=rng)
        for negated in (True, False):
            decoded = Decoded(torch.nn.Identity(), table, negated=negated).eval()(logits)
            assert torch.equal(decoded.argmax(1), logits.argmax(1))


def test_cpe_trains_its_matrix_and_keeps_what_is_forbidden() -> None:
    torch.manual_seed(0)
    estimator = make("cpe-t", matrix="skewed")
    model = estimator.extend(torch.nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x, mask = torch.randn(50, 6), ~torch.nn.functional.one_hot(torch.arange(50) % 4, 4).bool()
    start = model.log_transition().exp().detach()
    for _ in range(5):
        logits, extras = model.train()(x)
        optimizer.zero_grad()
        estimator.objective(logits, mask, extras).backward()
        optimizer.step()
    end = model.log_transition().exp().detach()
    torch.testing.assert_close(start.double(), torch.tensor(literal.skewed(4), dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(end.sum(1), torch.ones(4))
    assert torch.equal(end.diagonal(), torch.zeros(4))
    assert float((end - start).abs().max()) > 1e-3
    assert model.eval()(x).shape == (50, 4)


@pytest.mark.parametrize("num_classes", [3, 5])
def test_cpe_probabilities_of_a_decoding_network_stay_below_the_documented_bound(num_classes: int) -> None:
    from wsl_methods.cpe_networks import Decoded

    logits = 50 * torch.eye(num_classes)
    rows = torch.roll(torch.eye(num_classes), 1, dims=1)  # every class excludes the next one: rows at distance 2
    shown = torch.softmax(Decoded(torch.nn.Identity(), rows).eval()(logits), dim=-1)
    bound = 1 / (1 + (num_classes - 1) * math.exp(-2))
    assert shown.amax().item() == pytest.approx(bound, abs=1e-6)
    if num_classes == 3:
        assert round(bound, 3) == 0.787
