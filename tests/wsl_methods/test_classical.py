"""PL-kNN, IPAL, PL-ECOC, PL-SVM and CLPL are what slow transcriptions of their formulas say, and learn a table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from wsl_methods import neighbours as neighbours_module
from wsl_methods.clpl import ConvexPartialLabels
from wsl_methods.neighbours import IPAL, PLKNN, rebuilding_weights
from wsl_methods.output_codes import PLECOC
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
    found = rebuilding_weights(x, near.reshape(-1, width), np.arange(4 * k).reshape(4, k))
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


def test_ipal_predicts_in_parts_what_it_predicts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand images all that is rebuilt would fill gigabytes."""
    x, sets, _ = made(25)
    new = made(11, seed=1)[0]
    model = IPAL(n_neighbors=3).fit(x, sets)
    at_once = model.predict_proba(new)
    monkeypatch.setattr(neighbours_module, "CELLS", 4 * x.shape[1] * len(model.classes_))
    np.testing.assert_allclose(model.predict_proba(new), at_once, rtol=1e-12)


@pytest.mark.parametrize("model", [PLKNN(), IPAL(max_iter=20), PLECOC()], ids=lambda each: type(each).__name__)
def test_it_learns_digits_from_candidate_sets(model: Any) -> None:
    x, y = load_digits(return_X_y=True)
    sets = np.random.default_rng(0).random((len(y), 10)) < 0.3
    sets[np.arange(len(y)), y] = True
    model.fit(x[:800], sets[:800])
    assert model.score(x[800:1200], y[800:1200]) > 0.85, "ordinary labels: accuracy"
    assert model.score(x[800:1200], sets[800:1200]) >= model.score(x[800:1200], y[800:1200]), "sets: covering rate"


@pytest.mark.parametrize("model", [PLKNN(), IPAL(), PLECOC()], ids=lambda each: type(each).__name__)
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
        (PLECOC(), ["a|b", "a|b", "a|b"], "the sets are too large"),
        (PLECOC(code_length=0), ["a", "b", "a"], "code_length must be at least 1"),
        (PLECOC(minimum_share=2), ["a", "b", "a"], "minimum_share must be between 0 and 1"),
        (PLECOC(decoding="hamming"), ["a", "b", "a"], "decoding must be one of loss, score"),
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


@pytest.mark.parametrize("surrogate", ["squared-hinge", "hinge", "logistic"])
@pytest.mark.parametrize("pooling", ["mean", "sum"])
def test_clpl(surrogate: str, pooling: str) -> None:
    psi = {
        "squared-hinge": lambda u: max(0.0, 1 - u) ** 2,
        "hinge": lambda u: max(0.0, 1 - u),
        "logistic": lambda u: math.log(1 + math.exp(-u)),
    }[surrogate]
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 4, generator=rng, dtype=torch.float64)
    sets = torch.rand(50, 4, generator=rng) < 0.5
    sets[:, 0] |= ~sets.any(1)
    sets[0] = True
    found = ConvexPartialLabels(surrogate=surrogate, pooling=pooling).loss(logits, sets, {})
    for loss, f, s in zip(found.tolist(), logits.tolist(), sets.tolist(), strict=True):
        inside = sum(x for x, member in zip(f, s, strict=True) if member) / (sum(s) if pooling == "mean" else 1)
        outside = sum(psi(-x) for x, member in zip(f, s, strict=True) if not member)
        assert loss == pytest.approx(psi(inside) + outside)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1), surrogate=st.sampled_from(["squared-hinge", "logistic"]))
def test_clpl_is_convex(seed: int, share: float, surrogate: str) -> None:
    rng = torch.Generator().manual_seed(seed)
    a, b = 3 * torch.randn(2, 8, 5, generator=rng, dtype=torch.float64)
    sets = torch.rand(8, 5, generator=rng) < 0.5
    sets[:, 0] |= ~sets.any(1)
    clpl = ConvexPartialLabels(surrogate=surrogate)
    between = clpl.loss(share * a + (1 - share) * b, sets, {})
    assert bool((between <= share * clpl.loss(a, sets, {}) + (1 - share) * clpl.loss(b, sets, {}) + 1e-9).all())


@pytest.mark.parametrize("decoding", ["loss", "score"])
def test_pl_ecoc(decoding: str) -> None:
    """Codes, classifiers' examples, performance and decoding, class by class and example by example."""
    x, sets, _ = made(60)
    new = made(7, seed=1)[0]
    model = PLECOC(decoding=decoding, scale=False).fit(x, sets)
    codes = model.codes_
    columns = [tuple(column) for column in codes.T.tolist()]
    assert len({*columns, *(tuple(-c for c in column) for column in columns)}) == 2 * len(columns), "none comes twice"
    assert set(codes.ravel().tolist()) == {1, -1}
    decisions, performance = [], np.zeros(codes.shape)
    for column in range(codes.shape[1]):
        rows, side = [], []
        for i in range(60):
            found = {int(codes[j, column]) for j in range(3) if sets[i, j]}
            if len(found) == 1:
                rows.append(i)
                side.append(found == {1})
        assert len(rows) >= 6
        machine = SVC().fit(x[rows], side)
        decisions.append(machine.decision_function(new))
        for j in range(3):
            said = [bool(machine.predict(x[i : i + 1])[0]) for i in range(60) if sets[i, j]]
            performance[j, column] = np.mean([each == (codes[j, column] == 1) for each in said])
    performance /= performance.sum(1, keepdims=True)
    np.testing.assert_allclose(model.performance_, performance)
    for place, said in enumerate(model.predict(new)):
        sign = 1 if decoding == "score" else -1
        sums = [
            sum(performance[j, c] * math.exp(sign * codes[j, c] * decisions[c][place]) for c in range(codes.shape[1]))
            for j in range(3)
        ]
        assert sums[int(said)] == pytest.approx(max(sums) if decoding == "score" else min(sums))


def test_pl_ecoc_draws_the_same_codes_from_the_same_state_and_as_many_as_the_classes_ask_for() -> None:
    x, y = load_digits(return_X_y=True)
    sets = np.random.default_rng(0).random((300, 10)) < 0.1
    sets[np.arange(300), y[:300]] = True
    first, again, other = (PLECOC(random_state=state).fit(x[:300], sets) for state in (3, 3, 4))
    assert first.codes_.shape == (10, 34), "⌈10 log₂ 10⌉"
    assert np.array_equal(first.codes_, again.codes_)
    assert not np.array_equal(first.codes_, other.codes_)
    np.testing.assert_array_equal(first.predict_proba(x[300:320]), again.predict_proba(x[300:320]))
