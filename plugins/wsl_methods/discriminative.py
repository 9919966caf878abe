"""Discriminative complementary-label learning: a model of p(ȳ|x) itself, and a weight that widens the gap.

Gao, Zhang. Discriminative Complementary-Label Learning with Weighted Loss. ICML 2021.

    q = softmax(1 - p)                    the model of p(ȳ|x), p = softmax(f)
    L-UW:  -log q_ȳ                       L-W:  -(1 + w_ȳ) log q_ȳ,   w_j = (1 - p_j) / Σ_k (1 - p_k) = (1 - p_j)/(K-1)

The weight is part of what is differentiated, as in the authors' code. libcll calls L-W "DM".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import complement_mean
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import log_softmax, softmax

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Discriminative(Estimator):
    """Weighted discriminative loss, -(1 + w_ȳ) log q_ȳ with q = softmax(1 - p), averaged over s̄ where |s̄| > 1.

    Given the values of p, both forms grow with p_ȳ (for K ≥ 3 in the weighted one), so under MCL the expectation is
    least where the likeliest class has the largest p. As q lies between 1/(1 + (K-1)e) and 1/(1 + (K-1)/e), p is not
    p(y|x) there. A full set weighs nothing.
    """

    name: ClassVar[str] = "l-w"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Gao, Zhang (ICML 2021)"

    weighted: bool = param(True, help="yes: L-W, the paper's method; no: L-UW, its risk without the weight")

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:

        p = softmax(logits)
        losses = -log_softmax(1 - p)
        if self.weighted:
            losses = (1 + (1 - p) / max(p.shape[-1] - 1, 1)) * losses
        return complement_mean(losses, candidates)


ESTIMATORS: list[type[Estimator]] = [Discriminative]
