"""What differs between devices, in one place: the random stream that each keeps for itself beside the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from wsl_toolkit.system.memory import budget, free_memory

WITHOUT_STREAM = ("cpu", "meta")
"""Devices that draw from torch's CPU generator, or from none."""

DEVICE_BUDGET = "WSL_DEVICE_MEMORY"
"""The environment variable that says how much of a GPU's memory a process may count on."""


def device_memory(device: torch.device) -> int:
    """Return the bytes that are free on a device; `WSL_DEVICE_MEMORY` lowers it."""
    if device.type == "cuda":
        free = int(torch.cuda.mem_get_info(device)[0])
    elif device.type == "mps":
        free = int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    else:
        free = free_memory()
    return min(free, budget(DEVICE_BUDGET, free))


class DeviceStream:
    """A trainer's own copy of its device's random stream, as it has one of the CPU's.

    Dropout on a GPU draws from that GPU's generator. Trainers that take turns on one device would disturb each other's
    draws, and a resumed one would draw others, unless each brings its own. `module` is torch's for the kind of device,
    such as `torch.cuda`.
    """

    def __init__(self, device: torch.device, module: Any = None) -> None:
        self.device = device
        self._module = None if device.type in WITHOUT_STREAM else module or torch.get_device_module(device)
        # Of several GPUs each has its stream; Apple's is one.
        self._which = (device,) if device.type == "cuda" else ()
        self._state = self._read()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let the device draw from this stream inside, and from where it stood before afterwards."""
        if self._module is None or self._state is None:
            yield
            return
        before = self._read()
        self._module.set_rng_state(self._state, *self._which)
        try:
            yield
        finally:
            self._state = self._read()
            self._module.set_rng_state(before, *self._which)

    def state_dict(self) -> dict[str, Any]:
        """Return where the stream stands, for checkpoints; nothing on a device without one."""
        return {} if self._state is None else {"kind": self.device.type, "state": self._state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go back to where it stood; a stream of another kind of device means nothing here."""
        if saved.get("kind") == self.device.type:
            self._state = saved["state"]

    def _read(self) -> Tensor | None:
        return None if self._module is None else self._module.get_rng_state(*self._which).clone()
