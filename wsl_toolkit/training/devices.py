"""What differs between devices, in one place: which there are, what they can, and the random stream that each keeps.

Decisions are functions of `Facts`, so that they can be tried for machines that are not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.system.memory import budget, free_memory

WITHOUT_STREAM = ("cpu", "meta")
"""Devices that draw from torch's CPU generator, or from none."""

DEVICE_BUDGET = "WSL_DEVICE_MEMORY"
"""The environment variable that says how much of a GPU's memory a process may count on."""

VISIBLE = "CUDA_VISIBLE_DEVICES"
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""What cuBLAS reads when a process first uses it: with a workspace of fixed size its sums are repeatable."""


@attrs.frozen(kw_only=True)
class Facts:
    """What a machine has beside its CPU."""

    gpus: int = 0
    """How many GPUs CUDA sees."""
    mps: bool = False

    @classmethod
    def here(cls) -> Facts:
        """Return what this machine has."""
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return cls(gpus=gpus, mps=torch.backends.mps.is_available())


def choose_device(name: str, facts: Facts | None = None) -> torch.device:
    """Return the device of that name; 'auto' takes CUDA where there is a GPU, else Apple's where there is one."""
    if name == "auto":
        facts = facts or Facts.here()
        return torch.device("cuda" if facts.gpus else "mps" if facts.mps else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"--device {name!r} cannot be used here: {reason}") from None
    return device


def widest(device: torch.device) -> torch.dtype:
    """Return the widest floating-point numbers of a device; Apple's has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def visible_gpus(facts: Facts, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    given = environment.get(VISIBLE)
    names = [str(number) for number in range(facts.gpus)] if given is None else given.split(",")
    return [name.strip() for name in names if name.strip()][: facts.gpus]


def gpus_for_workers(device: str, facts: Facts, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the GPUs that local workers share out, one each; none where a study trains elsewhere or names one."""
    return visible_gpus(facts, environment) if device in ("auto", "cuda") else []


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Inside, let torch use no kernel whose sums depend on timing, and leave its settings as they were afterwards."""
    if not wanted:
        yield
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")  # of no use once cuBLAS has been used, and then torch says so
    cudnn = torch.backends.cudnn
    before = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
    benchmark, cudnn.benchmark = cudnn.benchmark, False
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.benchmark = benchmark


@contextmanager
def flushing(wanted: bool) -> Iterator[None]:
    """Inside, let this thread take numbers below 1.2e-38 for 0, and leave its setting as it was afterwards."""
    # Torch has no question for the setting, but an answer.
    flushed = bool(torch.tensor(1e-30) * 1e-10 == 0)
    torch.set_flush_denormal(wanted or flushed)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)


@contextmanager
def explained() -> Iterator[None]:
    """Say what to do where a device cannot do what a method or a setting asks of it."""
    try:
        yield
    except (RuntimeError, TypeError) as error:
        text = str(error)
        if "float64" in text and "MPS" in text:
            raise ConfigError(
                f"Apple's device has no float64, in which this method counts: use --device cpu ({one_line(error)[:99]})"
            ) from error
        if "deterministic" in text and ("use_deterministic_algorithms" in text or WORKSPACE in text):
            raise ConfigError(
                f"--deterministic: something that this run does has no deterministic form here; leave it out, or use "
                f"--device cpu ({one_line(error)[:160]})"
            ) from error
        raise


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
