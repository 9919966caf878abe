"""Small problems to train on, and the parts of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.stacking import Stack, group
from wsl_toolkit.training.trainer import Outcome, Trainer

MakeTrainer = Callable[..., Trainer]


def estimator(name: str, **values: Any) -> Estimator:
    created: Estimator = load_plugins().registry.create("estimator", name, values)
    return created


def inputs_and_candidates(n: int = 203, d: int = 6, k: int = 5, seed: int = 0) -> tuple[Tensor, CandidateSets]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(k, (n,), generator=rng)
    centres = 2 * torch.randn(k, d, generator=torch.Generator().manual_seed(99))
    mask = torch.rand(n, k, generator=rng) < 0.4
    mask[torch.arange(n), (y + 1) % k] = False
    mask[torch.arange(n), y] = True
    return centres[y] + torch.randn(n, d, generator=rng), CandidateSets.from_mask(mask)


def network(kind: str, d: int, k: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(d, k))
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(d, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU()]
    if kind == "dropout":
        layers.append(nn.Dropout(0.2))
    return nn.Sequential(*layers, nn.Linear(16, k))


def train_stacked(trainers: Sequence[Trainer], until: int) -> Iterator[list[Outcome]]:
    """Train trainers in the groups that the toolkit makes of them; yield every trainer's outcome of each epoch."""
    groups = group(trainers)
    members = [[trainers[place] for place in each.places] for each in groups]
    units = [Stack(together) if len(together) > 1 else together[0] for together in members]
    diverged: dict[int, DivergedError] = {}
    for _ in range(trainers[0].epoch, until):
        outcomes: dict[int, Outcome] = {}
        for each, unit in zip(groups, units, strict=True):
            found = unit.train_epoch()
            assert found is not None
            outcomes |= zip(each.places, found, strict=True)
        for place, outcome in outcomes.items():
            if isinstance(outcome, DivergedError):
                diverged.setdefault(place, outcome)
        yield [diverged.get(place, outcomes[place]) for place in range(len(trainers))]


def mapped_rows(path: Path, rows: Tensor) -> Tensor:
    """Rows in a file that is mapped into memory, not read."""
    np.save(path, rows.numpy())
    return torch.from_numpy(np.load(path, mmap_mode="c"))
