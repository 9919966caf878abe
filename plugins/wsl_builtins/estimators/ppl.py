"""Proper partial labels: candidates weighted by their confidence.

Wu, Lv, Sugiyama. Learning with Proper Partial Labels. Neural Computation, 2023.

    R̂(f) = 1/n Σ_i Σ_{j∈s_i} r_j(x_i, s_i) ℓ_j(f(x_i)),   r_j = p(y=j|x) / Σ_{k∈s} p(y=k|x)     Eq. (11)
"""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import ConfidenceEstimator
from wsl_toolkit import Kind, Setting


@attrs.frozen(kw_only=True)
class ProperPartialLabels(ConfidenceEstimator):
    """Confidence-weighted loss, Σ_{j∈s} r_j ℓ_j; confidences refreshed after each step (Algorithm 1).

    Unbiased in every proper setting with the true p(y|x) (Theorem 3). In training p(y|x) is the model's own softmax,
    so the estimate is only as good as the model: `wsl verify --monte-carlo` shows that bias shrink.
    """

    name: ClassVar[str] = "ppl"
    assumption: ClassVar[Setting] = Setting.PPL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Wu, Lv, Sugiyama (2023), Eq. (11) and Algorithm 1"
    update_when: ClassVar[Literal["never", "before", "after"]] = "after"
