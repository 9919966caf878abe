"""What classifiers for tables in scikit-learn's manner share: sets, scaling, and predictions from scores."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from wsl_toolkit.labels.array_sets import candidate_matrix

SMALL = 1e-10
"""Weights and masses below this count as nothing."""


class TableClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that learns from rows and candidate sets; subclasses have `scale`, `_learn` and `_scores`."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from inputs X [n, d] and candidate sets y."""
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        sets, classes = candidate_matrix(y)
        if len(sets) != len(X):
            raise ValueError(f"X has {len(X)} examples and y has {len(sets)} candidate sets")
        if sets.shape[1] < 2:
            raise ValueError(f"a classifier needs at least 2 classes, but y has 1 class: {classes[0]!r}")
        self.classes_, self.sets_ = classes, sets.astype(bool)
        spread = X.std(0)
        self.shift_ = X.mean(0) if self.scale else np.zeros(X.shape[1])
        self.spread_ = np.where(spread > 0, spread, 1.0) if self.scale else np.ones(X.shape[1])
        self._learn((X - self.shift_) / self.spread_)
        return self

    def _learn(self, x: np.ndarray) -> None:
        """Learn from scaled inputs and `sets_`."""
        raise NotImplementedError

    def _scores(self, x: np.ndarray) -> np.ndarray:
        """Return scores of all classes that are not negative, [n, K], of scaled inputs."""
        raise NotImplementedError

    def _scaled(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        scaled: np.ndarray = (validate_data(self, X, dtype=np.float64, reset=False) - self.shift_) / self.spread_
        return scaled

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return each class's share of the scores, in the order of `classes_`, [n, K]; alike where there are none."""
        scores = self._scores(self._scaled(X))
        total = scores.sum(1, keepdims=True)
        shares: np.ndarray = np.where(total > SMALL, scores / np.where(total > SMALL, total, 1), 1 / scores.shape[1])
        return shares

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the highest score of every example."""
        labels: np.ndarray = self.classes_[self.predict_proba(X).argmax(1)]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the covering rate; with ordinary labels, which are sets of one class, that is the accuracy."""
        sets = candidate_matrix(y, self.classes_)[0].astype(bool)
        covered = sets[np.arange(len(sets)), self.predict_proba(X).argmax(1)]
        return float(np.average(covered, weights=sample_weight))
