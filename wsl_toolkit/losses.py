"""The multi-class losses L(f, j) that risk estimators are built from, for every class j at once.

All work on logits [..., K] of any size without forming a logarithm of a probability, so that values and gradients
stay finite at ±1e4. Half-precision logits are lifted to float32 first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

GCE_Q = 0.7
"""The exponent that the generalised cross-entropy's authors recommend."""

PHUBER_TAU = 10.0
"""The partially Huberised cross-entropy is linear where p_y is at most 1/τ."""


def lifted(logits: Tensor) -> Tensor:
    """Return the logits in float32 if they came in less."""
    import torch

    return logits.to(torch.promote_types(logits.dtype, torch.float32))


_FEW_CLASSES, _MANY_ROWS = 16, 128
"""Fewer classes than numbers in a vector register, and enough rows for turning them to pay."""


def log_softmax(logits: Tensor) -> Tensor:
    """Return log p_j for every class j, [..., K]: torch's, several times as fast where there are few classes."""
    import torch

    return _along_classes(torch.log_softmax, lifted(logits))


def softmax(logits: Tensor) -> Tensor:
    """Return p_j for every class j, [..., K]: torch's, several times as fast where there are few classes."""
    import torch

    return _along_classes(torch.softmax, lifted(logits))


def _along_classes(function: Callable[..., Tensor], logits: Tensor) -> Tensor:
    """Apply a function of torch's along the last dimension, in the layout in which its kernel is quick."""
    # Along the last dimension torch's kernels go number by number through rows that do not fill a vector register.
    # Along the first they do many rows at once: 36 models' batches of ten classes in a quarter of the time or less.
    few = logits.ndim > 1 and logits.shape[-1] < _FEW_CLASSES and logits.shape[-2] >= _MANY_ROWS
    if few and logits.device.type == "cpu":
        return function(logits.movedim(-1, 0), dim=0).movedim(0, -1)
    return function(logits, dim=-1)


def cross_entropy(logits: Tensor) -> Tensor:
    """Return ℓ_j = -log p_j for every class j, [..., K]."""
    return -log_softmax(logits)


def mae(logits: Tensor) -> Tensor:
    """Return ℓ_j = 1 - p_j: the mean absolute error, bounded by 1 (Ghosh et al., AAAI 2017)."""
    return 1 - softmax(logits)


def mse(logits: Tensor) -> Tensor:
    """Return ℓ_j = Σ_k (p_k - 1{k=j})², the Brier score."""
    p = softmax(logits)
    return (p * p).sum(-1, keepdim=True) - 2 * p + 1


def gce(logits: Tensor, q: float = GCE_Q) -> Tensor:
    """Return ℓ_j = (1 - p_j^q)/q, between cross-entropy (q → 0) and MAE (q = 1) (Zhang, Sabuncu, NeurIPS 2018)."""
    import torch

    # p^q as exp(q log p): the derivative of a plain power is infinite at p = 0.
    return -torch.expm1(-q * cross_entropy(logits)) / q


def phuber_ce(logits: Tensor, tau: float = PHUBER_TAU) -> Tensor:
    """Return -log p_j where p_j > 1/τ, else its tangent -τ p_j + log τ + 1 (Menon et al., ICLR 2020)."""
    import torch

    ce = cross_entropy(logits)
    tangent = -tau * torch.exp(-ce) + (math.log(tau) + 1)
    return torch.where(ce < math.log(tau), ce, tangent)


MULTICLASS_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "cross-entropy": cross_entropy,
    "mae": mae,
    "mse": mse,
    "gce": gce,
    "phuber-ce": phuber_ce,
}
"""The named family: each takes logits [..., K] and returns ℓ_j for every class j, [..., K]."""


def confined(logits: Tensor, members: Tensor) -> Tensor:
    """Return the logits, with those off `members` [..., K] so low that their exponential is exactly 0."""
    import torch

    logits = lifted(logits)
    # An addition, because filling in at the places of a random mask makes processors guess, and costs six times more.
    return torch.add(logits, members.to(logits.dtype) - 1, alpha=torch.finfo(logits.dtype).max)


def cross_entropy_and_gradient(logits: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_j w_j ℓ_j for ℓ_j = -log p_j, [...], and its gradient p Σ_j w_j - w in the logits, [..., K]."""
    log_p = log_softmax(logits)
    return -(weights * log_p).sum(-1), log_p.exp().mul_(weights.sum(-1, keepdim=True)).sub_(weights)


def for_and_against_and_gradient(logits: Tensor, weights: Tensor, against: Tensor) -> tuple[Tensor, Tensor]:
    """Return -Σ_j w_j log p_j - Σ_j v_j log(1 - p_j), [...], and its gradient in the logits, [..., K]; v is `against`.

    With c_j = v_j p_j / (1 - p_j) the gradient is p (Σ w - Σ c) - (w - c), exact for any logits.
    """
    import torch

    log_p = log_softmax(logits)
    most, others = _parted(log_p)
    top, log_rest = most.to(log_p.dtype), torch.logsumexp(others, dim=-1, keepdim=True)
    p, spread = torch.exp(others), softmax(others)
    losses = -(weights * log_p).sum(-1) - (against * torch.where(most, log_rest, torch.log1p(-p))).sum(-1)
    # The odds of a class that has nearly all are infinite. Its share of the gradient is not: v p pushes it down, and up
    # the others, as they divide what it leaves.
    pushed = (against * top).sum(-1, keepdim=True) * -torch.expm1(log_rest)
    odds = against * p / (1 - p)
    p = p.add_(top * -torch.expm1(log_rest))
    slopes = p.mul_((weights - odds).sum(-1, keepdim=True)).sub_(weights - odds)
    return losses, slopes.addcmul_(pushed, top - spread)


def set_loss_and_gradient(logits: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log Σ_{j∈s} p_j, [...], and its gradient p - r in the logits, [..., K]; r is p restricted to s."""
    log_p, log_r, likeliest = _set_terms(logits, sets)
    losses = (log_r.gather(-1, likeliest) - log_p.gather(-1, likeliest)).squeeze(-1)
    return losses, log_p.exp() - log_r.exp()


def log_set_probability(logits: Tensor, sets: Tensor) -> Tensor:
    """Return log Σ_{j∈s} p_j of each non-empty set, [...]."""
    log_p, log_r, likeliest = _set_terms(logits, sets)
    return (log_p.gather(-1, likeliest) - log_r.gather(-1, likeliest)).squeeze(-1)


def _set_terms(logits: Tensor, sets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p_j and log r_j for every class, where r is the softmax over s alone, and the likeliest class of s."""
    # p_j = P(s) r_j for every j in s; the likeliest j is the most exact. Two log-softmaxes are twice as fast as two
    # logsumexps, finite for any logits, and have the same gradient, r - p.
    logits = lifted(logits)
    inside = confined(logits, sets)
    return log_softmax(logits), log_softmax(inside), inside.argmax(-1, keepdim=True)


def log_not(logits: Tensor) -> Tensor:
    """Return log(1 - p_j) for every class j, [..., K], exact for any logits and in O(K)."""
    return log_complement(log_softmax(logits))


def log_complement(log_p: Tensor) -> Tensor:
    """Return log(1 - p_j) for every class j from log p, [..., K], exact and in O(K)."""
    import torch

    most, others = _parted(log_p)
    return torch.where(most, torch.logsumexp(others, dim=-1, keepdim=True), torch.log1p(-torch.exp(others)))


def _parted(log_p: Tensor) -> tuple[Tensor, Tensor]:
    """Return which class has nearly all of p, [..., K], and log p with that class so low that it has none of it."""
    import torch

    # Up to p = 0.6, log1p(-p) loses next to nothing. At most one class has more, and none by rounding; for that one the
    # others are summed without it.
    # Neither argmax nor masked filling: both are slow, and they would undo the layout of `log_softmax`.
    most = log_p.detach() > math.log(0.6)
    return most, torch.add(log_p, most.to(log_p.dtype), alpha=-torch.finfo(log_p.dtype).max)
