"""Made instances: a generator whose law depends on x is looked at, at a handful of different x."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Generator
from wsl_toolkit.system.random_streams import stream

EXAMPLES_PER_CLASS = 20
FEATURES = 8
INSTANCES = 3


@attrs.frozen(eq=False)
class MadeData:
    """Overlapping Gaussian classes for a generator to learn from, and a few of their points to look at."""

    x: Tensor
    y: Tensor
    instances: Tensor


def made_data(num_classes: int, seed: int = 0) -> MadeData:
    """Make labelled points, float32 [20 K, 8], and pick the first few; the same for the same seed."""
    rng = stream(seed, "labels")
    y = torch.arange(num_classes).repeat_interleave(EXAMPLES_PER_CLASS)
    y = y[torch.randperm(len(y), generator=rng)]
    centres = torch.randn(num_classes, FEATURES, generator=rng)
    x = centres[y] + torch.randn(len(y), FEATURES, generator=rng)
    return MadeData(x, y, x[:INSTANCES])


def prepared(generator: Generator, num_classes: int, seed: int = 0) -> tuple[Generator, Tensor]:
    """Return the generator made ready on made data, and the instances at which to look at its law."""
    generator.check_classes(num_classes)
    data = made_data(num_classes, seed)
    return generator.prepare(data.x, data.y, num_classes, stream(seed, "training")), data.instances
