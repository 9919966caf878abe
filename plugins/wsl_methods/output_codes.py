"""A classifier for tables that learns from candidate sets without asking which candidate is right.

    from wsl_methods.output_codes import PLECOC
    PLECOC().fit(X, S).predict(X_new)

S is what `wsl_toolkit.sklearn.PartialLabelClassifier` takes: a 0/1 matrix, sets of classes, texts such as "cat|dog".

Zhang, Yu, Tang. Disambiguation-Free Partial Label Learning. TKDE 2017 (PL-ECOC).

    M [K, L] of ±1: error-correcting output codes, column by column drawn at random
    h_l: a binary classifier; its examples are those whose set lies on one side of column l, of {j: M_jl = 1} or of the
         rest; the others are left out
    R_jl = share of the examples with j ∈ s for which sign h_l is M_jl, each row divided by its sum
    prediction: argmin_j Σ_l R_jl exp(-M_jl h_l(x))

Read in the public code of two later comparisons; the paper's text and its authors' code were not at hand. Settled as
there: L = ⌈10 log₂ K⌉; a column counts if both sides have an example and together they have a tenth of all, no column
comes twice, be it with its signs turned round, and after 1,000 draws in vain there are as many as were found; support
vector machines with a Gaussian kernel and C = 1. One of the codes predicts argmax_j Σ_l R_jl exp(+M_jl h_l(x)) instead:
`decoding = "score"`. Settled here: features are standardised unless told otherwise; where there is no column at all,
that is an error, which the codes answer with guesses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wsl_methods.table_classifiers import SMALL, TableClassifier

PATIENCE = 1000
"""Columns that may be drawn in vain, one after another."""
DRAWN = 64
"""Columns that are drawn at a time."""
DECODINGS = ("loss", "score")


class PLECOC(TableClassifier):
    """Binary support vector machines on random halves of the classes, for the examples whose sets lie on one side.

    Parameters: `code_length`, how many of them, by default ⌈10 log₂ K⌉; `minimum_share`, the share of all examples that
    each has to have at least; `C`, how hard they fit; `decoding`, "loss" or "score"; `scale`, whether features are
    standardised; `random_state`, which draws the halves. Fitted: `codes_` [K, L] of ±1 and `performance_` [K, L].
    """

    def __init__(
        self,
        code_length: int | None = None,
        minimum_share: float = 0.1,
        C: float = 1.0,
        decoding: str = "loss",
        scale: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.code_length = code_length
        self.minimum_share = minimum_share
        self.C = C
        self.decoding = decoding
        self.scale = scale
        self.random_state = random_state

    def _learn(self, x: np.ndarray) -> None:
        from sklearn.svm import SVC

        self._check()
        self.codes_ = self._drawn_codes()
        positive, negative = one_sided(self.sets_, self.codes_ > 0)
        self.machines_ = []
        for column in range(self.codes_.shape[1]):
            told = positive[:, column] | negative[:, column]
            self.machines_.append(SVC(C=self.C).fit(x[told], positive[told, column]))
        members = self.sets_.astype(float)
        count = members.sum(0)[:, None]
        said = members.T @ (self._decisions(x) > 0) / np.maximum(count, 1)
        share = np.where(count > 0, np.where(self.codes_ > 0, said, 1 - said), 0.0)
        total = share.sum(1, keepdims=True)
        self.performance_ = share / np.where(total > SMALL, total, 1)

    def _check(self) -> None:
        if self.code_length is not None and self.code_length < 1:
            raise ValueError(f"code_length must be at least 1, not {self.code_length}")
        if not 0 <= self.minimum_share <= 1:
            raise ValueError(f"minimum_share must be between 0 and 1, not {self.minimum_share}")
        if self.decoding not in DECODINGS:
            raise ValueError(f"decoding must be one of {', '.join(DECODINGS)}, not {self.decoding!r}")

    def _drawn_codes(self) -> np.ndarray:
        """Return different columns with examples on both sides, [K, L]."""
        from sklearn.utils import check_random_state

        rng = check_random_state(self.random_state)
        n, classes = self.sets_.shape
        wanted = self.code_length or math.ceil(10 * math.log2(classes))
        least = max(1, int(self.minimum_share * n))
        found: dict[bytes, np.ndarray] = {}
        vain = 0
        while len(found) < wanted and vain < PATIENCE:
            columns = rng.randint(2, size=(classes, DRAWN)).astype(bool)
            columns[-1] = False  # so that no column is another one with its signs turned round
            positive, negative = (side.sum(0) for side in one_sided(self.sets_, columns))
            fits = (positive > 0) & (negative > 0) & (positive + negative >= least)
            for column, fit in zip(columns.T, fits, strict=True):
                new = bool(fit) and column.tobytes() not in found and len(found) < wanted
                vain = 0 if new else vain + 1
                if new:
                    found[column.tobytes()] = column
        if not found:
            raise ValueError(
                "no split of the classes has enough examples whose whole set lies on one side: the sets are too large "
                f"for PL-ECOC with minimum_share={self.minimum_share:g}"
            )
        return np.where(np.stack(list(found.values()), axis=1), 1, -1)

    def _decisions(self, x: np.ndarray) -> np.ndarray:
        """Return h_l(x), [n, L]."""
        return np.stack([machine.decision_function(x) for machine in self.machines_], axis=1)

    def _scores(self, x: np.ndarray) -> np.ndarray:
        decisions, scores = self._decisions(x), np.empty((len(x), len(self.codes_)))
        sign = 1 if self.decoding == "score" else -1
        for place, (code, performance) in enumerate(zip(self.codes_, self.performance_, strict=True)):
            scores[:, place] = np.exp(sign * code * decisions) @ performance
        return scores if sign > 0 else scores.max(1, keepdims=True) - scores


def one_sided(sets: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whose set [n, K] lies wholly in each column [K, L], and whose lies wholly outside it, [n, L] both."""
    inside = sets.astype(float) @ columns
    return inside == sets.sum(1, keepdims=True), inside == 0
