"""Vectorised draws that several generators share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def draw_sizes(weights: Tensor, n: int, rng: torch.Generator) -> Tensor:
    """Draw n integers in 0 .. len(weights)-1 with probability proportional to `weights` (float64), on rng's device."""
    import torch

    edges = (weights.cumsum(0) / weights.sum()).to(rng.device)
    draws = torch.rand(n, generator=rng, device=rng.device, dtype=torch.float64)
    return torch.searchsorted(edges, draws, right=True).clamp_(max=len(weights) - 1)


def draw_complement(y: Tensor, sizes: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    """Draw candidate masks [n, K] whose complement is uniform among the sets of given size (1..K-1) without y."""
    import torch

    keys = torch.rand(len(y), num_classes, generator=rng, device=rng.device).to(y.device)
    keys.scatter_(1, y.unsqueeze(1), 2.0)  # the true label sorts last, so it is never excluded
    threshold = keys.sort(dim=1).values.gather(1, (sizes - 1).unsqueeze(1))
    return keys > threshold
