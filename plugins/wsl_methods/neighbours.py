"""Classifiers for tables that learn from candidate sets by nearest neighbours, in scikit-learn's manner.

    from wsl_methods.neighbours import IPAL, PLKNN
    IPAL().fit(X, S).predict(X_new)

S is what `wsl_toolkit.sklearn.PartialLabelClassifier` takes: a 0/1 matrix, sets of classes, texts such as "cat|dog".

Hüllermeier, Beringer. Learning from Ambiguously Labeled Examples. IDA 2005 (PL-kNN).

    votes_j(x) = Σ_{i∈N(x)} (1 - d_i / Σ_{i'∈N(x)} d_i') 1{j ∈ s_i}     d: distances of the k nearest; all weigh 1 at 0

Zhang, Yu. Solving the Partial Label Learning Problem: An Instance-Based Approach. IJCAI 2015 (IPAL).

    w(x) = argmin_{w≥0} ‖x - Σ_{i∈N(x)} w_i x_i‖²
    W_·i = w(x_i) normalised;  F ← α Wᵀ F + (1-α) P, then normalised on the sets;  P_i = 1/|s_i| on s_i;  F starts as P
    label of a training example: argmax_j F_ij · Σ_i P_ij / Σ_i F_ij
    prediction: argmin_j ‖x - Σ_{i∈N(x), label i = j} w_i(x) x_i‖²

Read in the public code of later comparisons (Fuchs, Kalinke et al.); the papers' texts were not at hand. Settled as
there: k = 10, α = 0.95, 100 iterations. Settled here: features are standardised unless told otherwise. Where neighbours
outnumber features there are many best weights, of which the solver finds one.
"""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import NearestNeighbors

from wsl_methods.table_classifiers import SMALL, TableClassifier

CELLS = 5_000_000
"""Numbers of what is rebuilt at a time: for each row and class one of each column."""


class _Neighbours(TableClassifier):
    """A classifier that looks for nearest neighbours among the rows that it has learned from."""

    def _learn(self, x: np.ndarray) -> None:
        if self.n_neighbors < 1:
            raise ValueError(f"n_neighbors must be at least 1, not {self.n_neighbors}")
        self.x_ = x
        self.index_ = NearestNeighbors(n_neighbors=min(self.n_neighbors, len(x) - 1)).fit(x)


class PLKNN(_Neighbours):
    """The sets of the nearest neighbours vote, the nearer the more.

    Parameters: `n_neighbors`, how many vote; `scale`, whether features are standardised.
    """

    def __init__(self, n_neighbors: int = 10, scale: bool = True) -> None:
        self.n_neighbors = n_neighbors
        self.scale = scale

    def _scores(self, x: np.ndarray) -> np.ndarray:
        distances, places = self.index_.kneighbors(x)
        total = distances.sum(1, keepdims=True)
        weights = np.where(total < 1e-6, 1.0, 1 - distances / np.where(total < 1e-6, 1.0, total))
        # A single neighbour has all of the distance, and so no weight: its set is all that there is.
        weights = np.ones_like(weights) if weights.shape[1] == 1 else weights
        votes: np.ndarray = np.einsum("nk,nkc->nc", weights, self.sets_[places])
        return votes


class IPAL(_Neighbours):
    """Labels spread among neighbours that rebuild each other; predictions by what rebuilds an example best.

    Parameters: `n_neighbors`; `alpha`, how much comes from neighbours; `max_iter`, how often labels spread; `scale`,
    whether features are standardised. Fitted: `labels_`, the training examples' labels, and `confidences_` [n, K].
    """

    def __init__(self, n_neighbors: int = 10, alpha: float = 0.95, max_iter: int = 100, scale: bool = True) -> None:
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.max_iter = max_iter
        self.scale = scale

    def _learn(self, x: np.ndarray) -> None:
        from scipy.sparse import csr_array

        super()._learn(x)
        if not 0 <= self.alpha < 1:
            raise ValueError(f"alpha must be at least 0 and below 1, not {self.alpha}")
        places = self.index_.kneighbors(return_distance=False)
        weights = rebuilding_weights(self.x_, self.x_, places)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total > SMALL, total, 1)
        n, k = places.shape
        spread = csr_array((weights.ravel(), (np.repeat(np.arange(n), k), places.ravel())), shape=(n, n))
        first = self.sets_ / self.sets_.sum(1, keepdims=True)
        now = first
        for _ in range(self.max_iter):
            now = np.where(self.sets_, self.alpha * (spread @ now) + (1 - self.alpha) * first, 0.0)
            now = now / now.sum(1, keepdims=True)
        mass = now.sum(0)
        self.confidences_ = now * np.where(mass > SMALL, first.sum(0) / np.where(mass > SMALL, mass, 1), 1)
        self.places_ = self.confidences_.argmax(1)
        self.labels_ = self.classes_[self.places_]

    def _scores(self, x: np.ndarray) -> np.ndarray:
        rows = max(1, CELLS // (x.shape[1] * len(self.classes_)))
        return np.concatenate(
            [self._missing_less_than_most(x[start : start + rows]) for start in range(0, len(x), rows)]
        )

    def _missing_less_than_most(self, x: np.ndarray) -> np.ndarray:
        """Return how much nearer to each row what its neighbours of a class rebuild is than those of the worst one."""
        places = self.index_.kneighbors(x, return_distance=False)
        weights = rebuilding_weights(x, self.x_, places)
        member = self.places_[places][:, :, None] == np.arange(len(self.classes_))
        rebuilt = np.einsum("nkc,nkd->ncd", weights[:, :, None] * member, self.x_[places], optimize=True)
        missing = ((x[:, None] - rebuilt) ** 2).sum(2)
        scores: np.ndarray = missing.max(1, keepdims=True) - missing
        return scores


def rebuilding_weights(x: np.ndarray, table: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return w ≥ 0, [n, k], that minimises ‖x - Σ w_i t_i‖² of each row x [d] and its neighbours' rows t [k, d]."""
    from scipy.optimize import nnls

    # Row by row: the exact solver takes one problem, and iterations over all rows at once need thousands of passes
    # where neighbours lie almost in a plane.
    return np.stack([nnls(table[near].T, row)[0] for row, near in zip(x, places, strict=True)])
