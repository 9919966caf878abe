"""The multi-class losses L(f, j) that risk estimators are built from, for every class j at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy(logits: Tensor) -> Tensor:
    """Return ℓ_j = -log p_j for every class j, [..., K]."""
    import torch

    return -torch.log_softmax(logits, dim=-1)
