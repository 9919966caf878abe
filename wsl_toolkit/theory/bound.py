"""Theorem 4: how far the empirical risk minimiser can be from the best of its class.

    R(f̂) - R(f*) ≤ 4√2 ρ Σ_i ℜ_n(F_i) + 2M sqrt(log(2/δ) / (2n))     with probability at least 1 - δ

ρ is the Lipschitz constant of the loss in the logits, M its upper bound, ℜ_n(F_i) the Rademacher complexity of the
i-th logit's class. The theorem assumes a proper setting and the true p(y|x) in the confidences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from wsl_toolkit.errors import TheoryError

CROSS_ENTROPY_LIPSCHITZ = math.sqrt(2)
"""The gradient of -log p_y in the logits is p - e_y, whose length is below √2."""


@attrs.frozen(kw_only=True)
class Bound:
    """The two terms of Theorem 4."""

    complexity: float
    """4√2 ρ Σ_i ℜ_n(F_i)."""
    deviation: float
    """2M sqrt(log(2/δ) / (2n))."""

    @property
    def total(self) -> float:
        """What R(f̂) - R(f*) stays below with probability at least 1 - δ."""
        return self.complexity + self.deviation


def estimation_error_bound(
    complexities: Sequence[float], *, lipschitz: float, upper: float, n: int, delta: float
) -> Bound:
    """Return Theorem 4's bound from the Rademacher complexity of each logit's class."""
    _check(n=n, delta=delta)
    return Bound(
        complexity=4 * math.sqrt(2) * lipschitz * math.fsum(complexities),
        deviation=2 * upper * math.sqrt(math.log(2 / delta) / (2 * n)),
    )


def linear_bound(*, num_classes: int, n: int, radius: float, norm: float, delta: float = 0.05) -> Bound:
    """Return the bound for linear classifiers with ‖w_i‖ ≤ `norm` on inputs with ‖x‖ ≤ `radius`, and cross-entropy."""
    _check(n=n, delta=delta)
    if num_classes < 2 or radius < 0 or norm < 0:
        raise TheoryError(
            f"the bound needs at least 2 classes and norms that are not negative, not {num_classes} classes, "
            f"radius {radius:g}, norm {norm:g}"
        )
    return estimation_error_bound(
        [linear_complexity(n=n, radius=radius, norm=norm)] * num_classes,
        lipschitz=CROSS_ENTROPY_LIPSCHITZ,
        upper=largest_cross_entropy(num_classes, radius * norm),
        n=n,
        delta=delta,
    )


def linear_complexity(*, n: int, radius: float, norm: float) -> float:
    """Return the bound BΛ/√n on the Rademacher complexity of x -> w·x with ‖w‖ ≤ Λ, ‖x‖ ≤ B."""
    return radius * norm / math.sqrt(n)


def largest_cross_entropy(num_classes: int, largest_logit: float) -> float:
    """Return M = log(1 + (K-1) e^{2a}), the cross-entropy where the label has logit -a and all others have a."""
    exponent = math.log(num_classes - 1) + 2 * largest_logit
    return max(exponent, 0.0) + math.log1p(math.exp(-abs(exponent)))  # log(1 + e^z) without overflow


def _check(*, n: int, delta: float) -> None:
    if n < 1:
        raise TheoryError(f"the bound needs at least one example, not {n}")
    if not 0 < delta < 1:
        raise TheoryError(f"delta is a probability between 0 and 1, not {delta:g}")
