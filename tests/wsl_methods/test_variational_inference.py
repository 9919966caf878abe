"""VI-PLL is what a slow, literal transcription of its formulas gives."""

from __future__ import annotations

import math

import machinery_literals as literal
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from machinery_batches import B, K, made, matches
from scipy.optimize import minimize
from torch import nn

from wsl_methods.generative import Generative
from wsl_methods.vi_pll import VariationalInference, most_even
from wsl_toolkit import CandidateSets, State

SMALL = 1e-10


def linear(state: State, name: str, inputs: literal.Row) -> literal.Row:
    weight, bias = state[f"vae_{name}_weight"].tolist(), state[f"vae_{name}_bias"].tolist()
    return [literal.dot(row, inputs) + b for row, b in zip(weight, bias, strict=True)]


def encoded(state: State, x: literal.Row, y: literal.Row) -> tuple[literal.Row, literal.Row]:
    hidden = [max(0.0, h) for h in linear(state, "encoder", [*x, *y])]
    return linear(state, "mean", hidden), linear(state, "log_variance", hidden)


def decoded(state: State, z: literal.Row, y: literal.Row) -> literal.Row:
    return linear(state, "output", [max(0.0, h) for h in linear(state, "decoder", [*z, *y])])


def missed(state: State, i: int, y: literal.Row) -> tuple[float, float]:
    """The mean squared error of an example, and the divergence of its latent from the prior."""
    x, noise = state["inputs"][i].tolist(), state["latent_noise"][i].tolist()
    mean, log_variance = encoded(state, x, y)
    z = [m + math.exp(v / 2) * e for m, v, e in zip(mean, log_variance, noise, strict=True)]
    rebuilt = decoded(state, z, y)
    divergence = sum(-0.5 * (1 + v - m**2 - math.exp(v)) for m, v in zip(mean, log_variance, strict=True)) / len(z)
    return sum((a - b) ** 2 for a, b in zip(rebuilt, x, strict=True)) / len(x), divergence


@pytest.mark.parametrize("epoch", [1.0, 5.0])
def test_vi_pll(epoch: float) -> None:
    vi = VariationalInference(likelihood=3.0, prior=0.7, warm_up=3, samples=4, hidden=5, latent=2)
    batch = made(vi, epoch)
    state, w = batch.state, batch.state["membership"].tolist()
    share, likelihood = state["class_share"].tolist(), state["log_likelihood"].tolist()
    expected, errors = [], []
    for i in range(B):
        bound = 0.0
        for y in state["samples"][i].tolist():
            for j in range(K):
                known = 0.7 * math.log(share[j] + SMALL) + math.log(w[i][j] + SMALL)
                known += 3.0 * likelihood[i][j] if epoch >= 3 else 0.0
                bound += y[j] * (math.log(y[j] + SMALL) - known) / 4
        error, divergence = missed(state, i, w[i])
        errors.append(error)
        expected.append(bound + error + divergence)
    matches(vi, batch, expected)
    new = vi.update(batch.logits, batch.candidates, state)
    for i, (f, s) in enumerate(zip(batch.logits.tolist(), batch.candidates.tolist(), strict=True)):
        alpha = [1 + math.log(1 + math.exp(x)) if inside else 0.0 for x, inside in zip(f, s, strict=True)]
        assert new["membership"][i].tolist() == pytest.approx([a / max(alpha) for a in alpha])
    sigma = state["sigma"].item()
    followed = 0.95 * sigma + 0.05 * math.sqrt(sum(errors) / B)
    assert new["sigma"].item() == pytest.approx(followed if epoch < 3 else sigma)


def test_the_likelihood_of_each_class_is_a_mean_over_samples_of_the_latent(monkeypatch: pytest.MonkeyPatch) -> None:
    network, other = (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, K)).double() for _ in range(2))
    needs = VariationalInference.needs
    model = Generative(network, needs, second=other, samples=6, noise=0.0, hidden=5, latent=2).double()
    model.after_epoch({"sigma": torch.tensor(0.6)})
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.randn(6, 2, K, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    monkeypatch.setattr(torch, "randn", lambda *shape, **options: noise)
    weights = model.weights()
    found = model.log_likelihood(x, weights)
    for i, row in enumerate(x.tolist()):
        for j in range(K):
            y = [float(j == k) for k in range(K)]
            mean, log_variance = encoded(weights, row, y)
            total = 0.0
            for e in noise[:, i, j].tolist():
                z = [m + math.exp(v / 2) * n for m, v, n in zip(mean, log_variance, e, strict=True)]
                error = sum((a - b) ** 2 for a, b in zip(decoded(weights, z, y), row, strict=True)) / 3
                log_p = -0.5 * (error / 0.36 + math.log(2 * math.pi * 0.36))
                ratio = sum(
                    -0.5 * (u**2 + math.log(2 * math.pi))
                    + 0.5 * ((u - m) ** 2 / math.exp(v) + v + math.log(2 * math.pi))
                    for u, m, v in zip(z, mean, log_variance, strict=True)
                )
                total += math.exp(log_p + 0.01 * ratio / 2)
            assert found[i, j].item() == pytest.approx(math.log(total / 6))


def test_two_networks_make_one_dirichlet_whose_mean_is_the_prediction() -> None:
    torch.manual_seed(0)
    network, other = (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, K)).double() for _ in range(2))
    needs = VariationalInference.needs
    model = Generative(network, needs, second=other, samples=20_000, noise=0.0, hidden=5, latent=2).double()
    x = torch.randn(2, 3, dtype=torch.float64)
    logits, extras = model.look(x)
    torch.testing.assert_close(logits, (network(x) + other(x)) / 2)
    alpha = 1 + torch.log(1 + logits.exp())
    wanted = alpha / alpha.sum(1, keepdim=True)
    torch.testing.assert_close(extras["samples"].mean(1), wanted, atol=0.01, rtol=0)
    torch.testing.assert_close(model.eval()(x).softmax(1), wanted)
    assert torch.autograd.grad(extras["samples"][..., 0].sum(), other[2].weight)[0].abs().sum() > 0
    assert not extras["log_likelihood"].requires_grad


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 8))
def test_the_most_even_shares_are_those_that_a_solver_finds(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    some = rng.dirichlet(np.ones(classes))
    low, high = some * rng.random(classes), np.minimum(some + 0.3 * rng.random(classes), 1)
    found = most_even(torch.tensor(low), torch.tensor(high)).numpy()
    assert found.sum() == pytest.approx(1)
    assert (found >= low - 1e-12).all()
    assert (found <= high + 1e-12).all()

    def entropy(p: np.ndarray) -> float:
        return -float(np.sum(p * np.log(np.clip(p, 1e-10, 1))))

    solved = minimize(
        lambda p: -entropy(p),
        some,
        bounds=list(zip(low, high, strict=True)),
        constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1}],
    )
    assert entropy(found) >= entropy(solved.x / solved.x.sum()) - 1e-5


def test_shares_lie_between_those_of_single_labels_and_of_all_sets() -> None:
    sets = CandidateSets.from_sets([[0], [0], [0], [0, 1], [1, 2]], num_classes=4)
    found = VariationalInference().init_shared(sets)["class_share"]
    torch.testing.assert_close(found, torch.tensor([0.6, 0.2, 0.2, 0.0]))
