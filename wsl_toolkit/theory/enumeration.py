"""All candidate sets over K classes, and a generator's law over them as a table."""

from __future__ import annotations

import torch
from torch import Tensor

from wsl_toolkit.components import Generator
from wsl_toolkit.errors import PluginError, TheoryError

MAX_CLASSES = 12
"""2^12 sets are a table; many more classes are not."""

CHUNK_ROWS = 2**17
"""A generator is asked for this many probabilities at a time, so that its own tables stay small."""


def all_sets(num_classes: int, device: torch.device | str = "cpu") -> Tensor:
    """Return every set that is neither empty nor full, a boolean mask [2^K - 2, K]; row i is the binary code i + 1."""
    if not 2 <= num_classes <= MAX_CLASSES:
        raise TheoryError(f"sets are enumerated for 2 to {MAX_CLASSES} classes, not {num_classes}")
    codes = torch.arange(1, 2**num_classes - 1, device=device)
    return (codes.unsqueeze(1) >> torch.arange(num_classes, device=device)) & 1 == 1


def set_index(masks: Tensor) -> Tensor:
    """Return the row of `all_sets` that each mask [m, K] is; -1 for the empty set, 2^K - 2 for the full one."""
    return (masks.long() << torch.arange(masks.shape[1], device=masks.device)).sum(1) - 1


def law(generator: Generator, x: Tensor, num_classes: int) -> Tensor:
    """Return p(s | x, y) for every instance, set and class, float64 [n, 2^K - 2, K]; the generator is prepared."""
    sets = all_sets(num_classes)
    n, m = len(x), len(sets)
    values = []
    for rows in torch.arange(n * m * num_classes).split(CHUNK_ROWS):
        instance, cell = rows // (m * num_classes), rows % (m * num_classes)
        chosen, y = sets[cell // num_classes], cell % num_classes
        p = generator.probability(chosen, x[instance], y, num_classes)
        if p is None:
            raise TheoryError(f"generator {generator.name} gives no exact probability")
        if not isinstance(p, Tensor) or p.shape != (len(rows),):
            got = f"shape {tuple(p.shape)}" if isinstance(p, Tensor) else type(p).__name__
            raise PluginError(f"generator {generator.name}: probability must return {len(rows)} values here, not {got}")
        values.append(p.double())
    return torch.cat(values).view(n, m, num_classes)
