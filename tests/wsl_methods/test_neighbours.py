"""PL-kNN, IPAL and PL-SVM are what slow transcriptions of their formulas say, and learn a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from sklearn.datasets import load_digits

from wsl_methods.neighbours import IPAL, PLKNN, rebuilding_weights
from wsl_methods.pl_svm import PartialLabelMargin


def made(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of three overlapping classes, candidate sets, and the true classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    sets = rng.random((n, 3)) < 0.3
    sets[np.arange(n), y] = True
    return np.eye(3)[y] * 2 + rng.normal(size=(n, 3)), sets, y


def neighbours(x: np.ndarray, pool: np.ndarray, k: int, skip: int | None = None) -> list[int]:
    order = sorted((i for i in range(len(pool)) if i != skip), key=lambda i: float(np.linalg.norm(x - pool[i])))
    return order[:k]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(2, 9), width=st.integers(1, 6))
def test_weights_that_rebuild_an_example_are_those_of_non_negative_least_squares(seed: int, k: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    x, near = rng.normal(size=(4, width)), rng.normal(size=(4, k, width))
    found = rebuilding_weights(x, near)
    assert (found >= 0).all()
    for i in range(4):
        _, wanted = nnls(near[i].T, x[i])
        assert np.linalg.norm(x[i] - found[i] @ near[i]) == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def test_pl_knn() -> None:
    x, sets, _ = made(30)
    new = made(5, seed=1)[0]
    found = PLKNN(n_neighbors=4, scale=False).fit(x, sets).predict_proba(new)
    for row, given_ in zip(found, new, strict=True):
        near = neighbours(given_, x, 4)
        distances = [float(np.linalg.norm(given_ - x[i])) for i in near]
        votes = [
            sum((1 - d / sum(distances)) * sets[i, c] for i, d in zip(near, distances, strict=True)) for c in range(3)
        ]
        np.testing.assert_allclose(row, np.array(votes) / sum(votes))


def test_ipal() -> None:
    """With as many neighbours as features, of which more would have many best weights."""
    x, sets, _ = made(25)
    new = made(6, seed=1)[0]
    model = IPAL(n_neighbors=3, alpha=0.9, max_iter=7, scale=False).fit(x, sets)
    weights = np.zeros((25, 25))
    for i in range(25):
        near = neighbours(x[i], x, 3, skip=i)
        weights[near, i] = nnls(x[near].T, x[i])[0]
    weights /= np.where(weights.sum(0) > 0, weights.sum(0), 1)
    first = np.array([[inside / sum(row) for inside in row] for row in sets.tolist()])
    now = first.copy()
    for _ in range(7):
        now = 0.9 * weights.T @ now + 0.1 * first
        for i in range(25):
            now[i] = np.where(sets[i], now[i] / now[i][sets[i]].sum(), 0)
    fair = now * first.sum(0) / now.sum(0)
    np.testing.assert_allclose(model.confidences_, fair, atol=1e-6)
    label = fair.argmax(1)
    for given_, said in zip(new, model.predict(new), strict=True):
        near = neighbours(given_, x, 3)
        w = nnls(x[near].T, given_)[0]
        missing = [
            np.linalg.norm(given_ - sum((w[p] * x[i] for p, i in enumerate(near) if label[i] == c), np.zeros(3)))
            for c in range(3)
        ]
        assert missing[int(said)] == pytest.approx(min(missing))


@pytest.mark.parametrize("model", [PLKNN(), IPAL(max_iter=20)], ids=lambda each: type(each).__name__)
def test_it_learns_digits_from_candidate_sets(model: Any) -> None:
    x, y = load_digits(return_X_y=True)
    sets = np.random.default_rng(0).random((len(y), 10)) < 0.3
    sets[np.arange(len(y)), y] = True
    model.fit(x[:800], sets[:800])
    assert model.score(x[800:1200], y[800:1200]) > 0.85, "ordinary labels: accuracy"
    assert model.score(x[800:1200], sets[800:1200]) >= model.score(x[800:1200], y[800:1200]), "sets: covering rate"


@pytest.mark.parametrize("model", [PLKNN(), IPAL()], ids=lambda each: type(each).__name__)
def test_names_of_classes_repeated_rows_and_few_examples(model: Any) -> None:
    model.fit([[0.0], [0.0], [5.0]], ["cat|dog", "cat", "dog"])
    assert model.predict([[0.0], [5.0]]).tolist()[0] == "cat"
    np.testing.assert_allclose(model.predict_proba([[0.0], [9.0]]).sum(1), 1)


@pytest.mark.parametrize(
    ("model", "y", "words"),
    [
        (PLKNN(), ["a", "b"], "3 examples and y has 2 candidate sets"),
        (PLKNN(n_neighbors=0), ["a", "b", "a"], "n_neighbors must be at least 1"),
        (IPAL(alpha=1.0), ["a", "b", "a"], "alpha must be at least 0 and below 1"),
        (PLKNN(), ["a", "a", "a"], "at least 2 classes"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_words(model: Any, y: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model.fit([[0.0], [1.0], [2.0]], y)


def test_pl_svm() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 4, generator=rng, dtype=torch.float64)
    sets = torch.rand(50, 4, generator=rng) < 0.5
    sets[:, 0] |= ~sets.any(1)
    sets[0] = True
    found = PartialLabelMargin().loss(logits, sets, {})
    for loss, f, s in zip(found.tolist(), logits.tolist(), sets.tolist(), strict=True):
        inside = max(x for x, member in zip(f, s, strict=True) if member)
        outside = [x for x, member in zip(f, s, strict=True) if not member]
        assert loss == pytest.approx(max(0.0, 1 - inside + max(outside)) if outside else 0.0)
