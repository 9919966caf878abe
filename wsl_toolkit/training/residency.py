"""Where inputs lie while a network trains: as bytes or numbers, in memory, on the device, or in a file."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor, nn

from wsl_toolkit.data.inputs import Inputs, StreamedInputs
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.system.memory import MEMORY_SHARE, free_memory
from wsl_toolkit.training.devices import device_memory
from wsl_toolkit.training.plan import forward_operations

WORK_FOR_BYTES = 300
"""Floating-point operations of a forward pass for each number of an example, from which bytes can be scaled anew at
every visit for a few hundredths of the time at most. A linear model of ten classes has 20, a small perceptron 1,000."""


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


def placed(inputs: Tensor | StreamedInputs, device: torch.device, room: int | None = None) -> Tensor | StreamedInputs:
    """Return inputs for a network on a device: all of them there if they take a third of its memory, or else batches.

    `room` is how many bytes are free there.
    """
    if device.type == "cpu":
        return inputs.to(device)
    room = device_memory(device) if room is None else room
    size = inputs.nbytes if isinstance(inputs, Tensor) else inputs.row_bytes
    if size <= room // MEMORY_SHARE:
        if isinstance(inputs, StreamedInputs) and inputs.in_memory:
            return inputs.resident(device)
        return inputs.to(device)
    if isinstance(inputs, Tensor):
        return StreamedInputs(inputs, device=device, workers=0)
    return inputs.to(device)


def how_kept(inputs: Inputs) -> str:
    """Return in a sentence where training inputs are, if that is neither memory nor the device as a whole."""
    if not isinstance(inputs, StreamedInputs):
        return ""
    count = f"{len(inputs):,} training examples ({inputs.row_bytes / 1e6:,.0f} MB)"
    if not inputs.in_memory:
        return f"{count} stay in a file, and are read while others train: more than a third of the memory that is free"
    if inputs.is_elsewhere:
        return f"{count} stay in the machine's memory, and go to the device in batches: it has too little for all"
    return ""
