"""All candidate sets over K classes, and a generator's law over them as a table."""

from __future__ import annotations

import torch
from torch import Tensor

from wsl_toolkit.components import Generator
from wsl_toolkit.errors import TheoryError

MAX_CLASSES = 12
"""2^12 sets are a table; many more classes are not."""


def all_sets(num_classes: int, device: torch.device | str = "cpu") -> Tensor:
    """Return every set that is neither empty nor full, a boolean mask [2^K - 2, K]."""
    if not 2 <= num_classes <= MAX_CLASSES:
        raise TheoryError(f"sets are enumerated for 2 to {MAX_CLASSES} classes, not {num_classes}")
    codes = torch.arange(1, 2**num_classes - 1, device=device)
    return (codes.unsqueeze(1) >> torch.arange(num_classes, device=device)) & 1 == 1


def law(generator: Generator, x: Tensor, num_classes: int) -> Tensor:
    """Return p(s | x, y) for every instance, set and class, float64 [n, 2^K - 2, K]."""
    sets = all_sets(num_classes)
    n, m = len(x), len(sets)
    grid_x = x.repeat_interleave(m * num_classes, dim=0)
    grid_s = sets.repeat_interleave(num_classes, dim=0).repeat(n, 1)
    grid_y = torch.arange(num_classes).repeat(n * m)
    p = generator.probability(grid_s, grid_x, grid_y, num_classes)
    if p is None:
        raise TheoryError(f"generator {generator.name} gives no exact probability")
    return p.double().view(n, m, num_classes)
