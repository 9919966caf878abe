"""Laws over the number of complementary labels, and the constant C(x, s) that each of them implies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def log_binomial(n: int) -> Tensor:
    """Return log binom(n, k) for k = 0..n, float64 [n + 1]."""
    import torch

    k = torch.arange(n + 1, dtype=torch.float64)
    return torch.lgamma(torch.tensor(n + 1.0, dtype=torch.float64)) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def skewed(alpha: float, num_classes: int) -> Tensor:
    """Return Q̄_k ∝ α^k for k = 1..K-1, float64."""
    import math

    import torch

    return torch.softmax(torch.arange(1, num_classes, dtype=torch.float64) * math.log(alpha), dim=0)


def binomial(join: float, num_classes: int) -> Tensor:
    """Return Q̄_k ∝ binom(K-1, k) (1-q)^k q^(K-1-k) for k = 1..K-1: wrong labels join with q, and not all of them."""
    import torch

    k = torch.arange(1, num_classes, dtype=torch.float64)
    others = num_classes - 1
    join_ = torch.tensor(join, dtype=torch.float64)
    logits = log_binomial(others)[1:] + torch.xlogy(k, 1 - join_) + torch.xlogy(others - k, join_)
    return torch.softmax(logits, dim=0)


def constant_by_size(complement_sizes: Tensor, sets: Tensor) -> Tensor:
    """Return C(x, s) = Q̄_{|s̄|} / binom(K-1, |s̄|) for masks [m, K] (Table 1)."""
    import torch

    num_classes = sets.shape[1]
    table = torch.zeros(num_classes + 1, dtype=torch.float64)  # sizes 0 and K are impossible
    table[1:num_classes] = complement_sizes * torch.exp(-log_binomial(num_classes - 1)[1:])
    return table.to(sets.device)[(~sets).sum(1)]
