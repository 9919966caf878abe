"""Vectorised draws that several generators share: exact, from one explicit stream, without a loop over examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BLOCK = 2**14
"""Examples drawn at a time on a CPU: their numbers stay in its cache, and threads are not woken for a short vector."""


def draw_index(weights: Tensor, n: int, rng: torch.Generator) -> Tensor:
    """Draw n integers in 0 .. len(weights)-1 with probability proportional to `weights` (float64), on rng's device."""
    import torch

    edges = weights.cumsum(0)
    draws = torch.rand(n, generator=rng, device=rng.device, dtype=torch.float64) * edges[-1].item()
    last = int(weights.nonzero()[-1])  # a draw that rounds up to the last edge must not reach a weight of zero
    return torch.searchsorted(edges.to(rng.device), draws, right=True).clamp_(max=last)


def draw_complement(y: Tensor, sizes: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    """Draw candidate masks [n, K] whose complement is uniform among the sets of given size (1..K-1) without y.

    Selection sampling (Fan, Muller and Rezucha, 1962): go through the K-1 wrong labels once, and exclude each with
    probability (still to exclude) / (still to come). Sizes are met exactly, at K passes over n numbers and no sort.
    """
    import torch

    mask = torch.empty(len(y), num_classes, dtype=torch.bool, device=y.device)
    block = BLOCK if y.device.type == "cpu" else max(len(y), 1)
    for part, y_part, sizes_part in zip(mask.split(block), y.split(block), sizes.split(block), strict=True):
        part.copy_(_select(y_part, sizes_part.to(y.device), num_classes, rng).T)
    return mask


def _select(y: Tensor, sizes: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    """Draw the masks of `draw_complement`, class by class: [K, n]."""
    import torch

    n = len(y)
    draws = torch.empty(n, dtype=torch.float64, device=rng.device)
    to_exclude = sizes.double()
    kept = torch.empty(num_classes, n, dtype=torch.bool, device=y.device)
    for j in range(num_classes - 1):
        draws.uniform_(generator=rng)
        torch.ge(draws.to(y.device) * (num_classes - 1 - j), to_exclude, out=kept[j])
        to_exclude.add_(kept[j]).sub_(1)
    # The loop decided K-1 places; the last class stands in at place y, and y itself is always kept.
    example = torch.arange(n, device=y.device)
    kept[-1] = True
    kept[-1] = kept[y, example]
    kept[y, example] = True
    return kept


def draw_column(weights: Tensor, rng: torch.Generator) -> Tensor:
    """Draw one column for each row of `weights` [n, K] (float64), in proportion to the row; some weight is positive."""
    import torch

    # An exponential race: the smallest E_j / w_j is at j with probability proportional to w_j, never where w_j = 0.
    race = torch.empty(weights.shape, dtype=torch.float64, device=rng.device).exponential_(generator=rng)
    return race.to(weights.device).div_(weights).argmin(1)


def draw_joining(y: Tensor, joins: Tensor, rng: torch.Generator) -> Tensor:
    """Draw masks where wrong label j joins with probability joins[i, j] in [0, 1], given that not all of them join.

    Redrawing full sets is the law given that some label stays out. It is drawn directly: first which label is the
    first to stay out, then the labels after it, freely. No row of `joins` may be 1 at every wrong label.
    """
    import torch

    columns = torch.arange(joins.shape[1], device=y.device)
    joins = joins.double().scatter(1, y.unsqueeze(1), 1.0)
    all_before_join = joins.cumprod(1).roll(1, dims=1)
    all_before_join[:, 0] = 1.0
    first_out_weight = all_before_join * (1 - joins)
    first_out = draw_column(first_out_weight, rng).unsqueeze(1)
    draws = torch.rand(joins.shape, generator=rng, device=rng.device, dtype=torch.float64).to(y.device)
    mask = (columns < first_out) | (draws < joins)
    return mask.scatter_(1, first_out, False)


def joining_probability(sets: Tensor, y: Tensor, joins: Tensor) -> Tensor:
    """Return p(s | y) of `draw_joining` for masks [m, K], with joins [m, K] in float64."""
    import torch

    joins = joins.double().scatter(1, y.unsqueeze(1), 1.0)
    chance = torch.where(sets, joins, 1 - joins).prod(1)
    some_stay_out = -torch.expm1(joins.log().sum(1))  # 1 - Π joins, without cancellation where all are near 1
    return torch.where(sets.all(1), torch.zeros_like(chance), chance / some_stay_out)
