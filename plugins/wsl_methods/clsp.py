"""Candidate label set pruning: drop candidates that the nearest neighbours do not share.

He, Wang, Yang, Feng. Candidate Label Set Pruning: A Data-centric Perspective for Deep Partial-label Learning. ICLR
2024.

    o_j = number of the k nearest neighbours of x whose sets do not hold j                        for j ∈ s
    at most ⌈τ (|s| - 1)⌉ candidates leave: those with more such votes than the one next in order, ties all stay

Settled as in the authors' code: neighbours are the nearest by the cosine, and ties stay. Settled here: features are the
inputs as the network gets them, for a large pretrained encoder such as theirs is no part of the toolkit; k and τ are
their code's defaults, and their runs use others for each data set. A full set says that nothing is known: it stays
full and votes for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_methods.machinery import unit
from wsl_toolkit import Transform, param

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wsl_toolkit import CandidateSets

PIECE = 2**24
"""Similarities that are held at a time."""


@attrs.frozen(kw_only=True)
class NeighbourPruning(Transform):
    """Of each set, without the candidates that the nearest neighbours' sets do not hold most often."""

    name: ClassVar[str] = "clsp"
    citation: ClassVar[str] = "He et al. (ICLR 2024)"

    neighbours: int = param(10, help="k: how many neighbours vote", ge=1)
    share: float = param(0.2, help="τ: share of the candidates but one that may leave a set", ge=0, le=1)

    def apply(self, x: Tensor, candidates: CandidateSets, rng: torch.Generator) -> CandidateSets:
        """Let neighbours vote, and drop what too few of them share."""
        from wsl_toolkit import CandidateSets

        mask = candidates.mask()
        votes = against(mask, nearest(x.flatten(1), self.neighbours))
        kept = mask & ~pruned(mask, votes, self.share)
        kept[mask.all(1)] = True
        return CandidateSets.from_mask(kept, candidates.class_names)


def nearest(features: Tensor, count: int) -> Tensor:
    """Return the places of each row's nearest others by the cosine, [n, count] or fewer columns, the nearest first."""
    import torch

    rows = unit(features)
    n = len(rows)
    found = []
    for part in torch.arange(n, device=rows.device).split(max(1, PIECE // n)):
        alike = rows[part] @ rows.T
        alike[torch.arange(len(part), device=rows.device), part] = -torch.inf
        found.append(alike.topk(min(count, n - 1), dim=1).indices)
    return torch.cat(found)


def against(mask: Tensor, neighbours: Tensor) -> Tensor:
    """Return for each candidate how many neighbours' sets do not hold it, [n, K]; 0 off the set."""
    import torch

    votes = torch.zeros(mask.shape, dtype=torch.int64, device=mask.device)
    for place in neighbours.T:  # as many as there are neighbours; all at once would be [n, k, K]
        votes += ~mask[place]
    return votes * mask


def pruned(mask: Tensor, votes: Tensor, share: float) -> Tensor:
    """Return which candidates leave: those with more votes than the one that is next after the most that may leave."""
    most = ((mask.sum(1) - 1) * share).ceil().long()
    bar = votes.sort(dim=1, descending=True).values.gather(1, most.unsqueeze(1))
    return votes > bar


TRANSFORMS: list[type[Transform]] = [NeighbourPruning]
