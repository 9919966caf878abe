"""How much examples count: what is a weight, and what is not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wsl_toolkit.errors import DataError


def as_weights(weights: Any, n: int, name: str) -> Tensor:
    """Return how much each of n examples counts, [n]; refuse what is no weight, and name its place."""
    try:
        found = torch.as_tensor(weights)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"{name}: weights must be {n} numbers, not {type(weights).__name__}") from None
    if found.shape != (n,) or found.is_complex():
        raise DataError(f"{name}: weights must be {n} numbers, one for each example, not of shape {tuple(found.shape)}")
    wrong = ((found < 0) | ~torch.isfinite(found)).nonzero().flatten()
    if len(wrong):
        place = int(wrong[0])
        raise DataError(f"{name}: the weight of example {place} is {float(found[place])}: it must be 0 or more")
    if not bool((found > 0).any()):
        raise DataError(f"{name}: all weights are 0: there is nothing to learn from")
    return found
