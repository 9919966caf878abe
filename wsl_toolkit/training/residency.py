"""How inputs that were read as bytes lie in memory while a network trains: as bytes, or as the network wants them."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from torch import nn

from wsl_toolkit.data.inputs import StreamedInputs
from wsl_toolkit.data.problem import MEMORY_SHARE, Problem
from wsl_toolkit.system.memory import free_memory
from wsl_toolkit.training.plan import forward_operations

WORK_FOR_BYTES = 300
"""Floating-point operations of a forward pass for each number of an example, from which bytes can be scaled anew at
every visit for about a hundredth of the time. A linear model of ten classes has 20, a small perceptron 1,000."""


def settled(problem: Problem, model: nn.Module) -> Problem:
    """Return the problem with its bytes scaled once, if the network is so small that scaling would cost it much.

    The numbers are the same to the bit. Four times the memory is taken for it only where a third of what is free
    suffices.
    """
    parts = {name: getattr(problem, name) for name in ("train_x", "validation_x", "test_x")}
    raw = {name: part for name, part in parts.items() if isinstance(part, StreamedInputs) and part.in_memory}
    if "train_x" not in raw:
        return problem
    work = forward_operations(model, problem.train_x) / max(1, int(np.prod(problem.input_shape)))
    wanted = sum(part.missing_bytes for part in raw.values())
    if work >= WORK_FOR_BYTES or wanted > free_memory() // MEMORY_SHARE:
        return problem
    whole: dict[str, Any] = {name: part.whole() for name, part in raw.items()}
    return attrs.evolve(problem, **whole)
