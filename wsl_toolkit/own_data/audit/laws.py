"""Laws of candidate sets to test data against: fitting them, and drawing from what was fitted.

Uniform given the size (MCL): p(s | |s| = k) = π(s) / binom(K-1, k-1), hence
    P(j ∈ s | k)    = a + b π_j                      a = (k-1)/(K-1),  b = (K-k)/(K-1)
    P(j, l ∈ s | k) = (π_j + π_l) a + (1 - π_j - π_l) a (k-2)/(K-2).
Depends on the set alone (CMM): p(y = j | s) = π_j / Σ_{k∈s} π_k, Luce's choice rule; proper (PPL): the same with
p(y = j | x) in place of π_j (Theorem 1 of Wu, Lv and Sugiyama).
"""

from __future__ import annotations

import torch
from torch import Tensor

RIDGE = 0.1
"""Prior precision of a choice rule's parameters: as much as a tenth of a choice says."""


def class_priors(mask: Tensor) -> Tensor:
    """Return the least-squares π of the law that is uniform given the size, float64 [K]; it sums to 1."""
    num_classes = mask.shape[1]
    sizes = mask.sum(1).double()
    offset, slope = (sizes - 1) / (num_classes - 1), (num_classes - sizes) / (num_classes - 1)
    weighted = slope @ mask.double()
    return (weighted - (slope * offset).sum()) / slope.square().sum().clamp(min=1e-12)


def expected_pairs(sizes: Tensor, priors: Tensor) -> Tensor:
    """Return how many sets should hold both j and l under that law, [K, K]; the diagonal means nothing."""
    num_classes = len(priors)
    a = (sizes.double() - 1) / (num_classes - 1)
    both_wrong = a * (sizes.double() - 2) / max(num_classes - 2, 1)
    either = priors[:, None] + priors[None, :]
    return either * a.sum() + (1 - either) * both_wrong.sum()


def expected_inclusions(sizes: Tensor, groups: Tensor, priors: Tensor) -> Tensor:
    """Return how many sets of each group of sizes should hold each class, [G, K]."""
    num_classes = len(priors)
    a = (sizes.double() - 1) / (num_classes - 1)
    b = (num_classes - sizes.double()) / (num_classes - 1)
    total = torch.zeros(int(groups.max()) + 1, 2, dtype=torch.float64)
    total.index_add_(0, groups, torch.stack([a, b], dim=1))
    return total[:, :1] + total[:, 1:] * priors


def draw_labels(weights: Tensor, mask: Tensor, rng: torch.Generator) -> Tensor:
    """Draw y_i in proportion to weights [K] or [n, K] on the set s_i, [n]."""
    restricted = weights.expand(mask.shape) * mask
    level = torch.rand(len(mask), 1, generator=rng, dtype=restricted.dtype) * restricted.sum(1, keepdim=True)
    # Inverse of the cumulative weights; clamped to a member, where rounding would step over the last one.
    chosen = (restricted.cumsum(1) <= level).sum(1)
    last = mask.shape[1] - 1 - mask.flip(1).byte().argmax(1)
    return torch.minimum(chosen, last)


def draw_uniform_given_size(labels: Tensor, sizes: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    """Draw sets that hold y_i and |s_i| - 1 other classes, all equally likely, [n, K]."""
    keys = torch.rand(len(labels), num_classes, generator=rng)
    keys.scatter_(1, labels[:, None], -1)
    return keys.argsort(1).argsort(1) < sizes[:, None]


class ChoiceRule:
    """p(y = j | x, s) ∝ exp(θ_j + β u_j(x)) on s: Luce's rule with class weights e^θ, and a tempered model e^(βu)."""

    def __init__(self, mask: Tensor, utility: Tensor | None) -> None:
        self.mask = mask
        self.utility = None if utility is None else utility.double().masked_fill(~mask, 0)
        self.parameters = torch.zeros(mask.shape[1] + (utility is not None), dtype=torch.float64)

    def shares(self, parameters: Tensor) -> Tensor:
        """Return p(y = j | x_i, s_i) for every example and class, [n, K]."""
        num_classes = self.mask.shape[1]
        score = parameters[:num_classes].expand(self.mask.shape)
        if self.utility is not None:
            score = score + parameters[num_classes] * self.utility
        return torch.softmax(score.masked_fill(~self.mask, -torch.inf), dim=1)

    def fit(self, labels: Tensor, start: Tensor, steps: int) -> Tensor:
        """Return the parameters after some Newton steps on the likelihood, held near 0 by a weak ridge."""
        chosen = torch.nn.functional.one_hot(labels, self.mask.shape[1]).double()
        parameters = start
        for _ in range(steps):
            share = self.shares(parameters)
            gradient = (chosen - share).sum(0)
            hessian = torch.diag(share.sum(0)) - share.T @ share
            if self.utility is not None:
                gradient, hessian = self._with_utility(chosen, share, gradient, hessian)
            hessian += RIDGE * torch.eye(len(parameters), dtype=torch.float64)
            step = torch.linalg.solve(hessian, gradient - RIDGE * parameters)
            parameters = parameters + step.clamp(-2, 2)
        return parameters

    def _with_utility(self, chosen: Tensor, share: Tensor, gradient: Tensor, hessian: Tensor) -> tuple[Tensor, Tensor]:
        """Add β's row: utilities centred by their mean under the shares."""
        assert self.utility is not None
        centred = self.utility - (share * self.utility).sum(1, keepdim=True)
        slope = ((chosen - share) * self.utility).sum()
        cross = (share * centred).sum(0)
        curvature = (share * centred.square()).sum()
        top = torch.cat([hessian, cross[:, None]], dim=1)
        return torch.cat([gradient, slope[None]]), torch.cat([top, torch.cat([cross, curvature[None]])[None]])


def chosen_with(labels: Tensor, mask: Tensor) -> Tensor:
    """Return how often y = j while l is a candidate too, [K, K]."""
    num_classes = mask.shape[1]
    return torch.zeros(num_classes, num_classes).index_add_(0, labels, mask.float()).double()


def misfit(observed: Tensor, expected: Tensor) -> float:
    """Return Σ (O - E)² / E over cells, those with less than one expected event as if they had one."""
    return float(((observed - expected).square() / expected.clamp(min=1)).sum())
