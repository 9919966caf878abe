"""Independent random streams by purpose, so that changing the method does not change the data."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def stream_seed(seed: int, purpose: str) -> int:
    """Return the seed of one purpose's stream, unrelated to the others'."""
    digest = hashlib.sha256(f"wsl stream {seed} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, purpose: str, device: str | torch.device = "cpu") -> torch.Generator:
    """Return one purpose's random stream, at its beginning."""
    import torch

    return torch.Generator(device).manual_seed(stream_seed(seed, purpose))


def seed_torch(seed: int) -> None:
    """Put torch's global streams at the beginning that a seed names, to the bits of `torch.manual_seed`.

    Where there is no accelerator, that function notes down the whole call stack for each kind that might appear: about
    a millisecond, and it is called for every batch that is augmented.
    """
    import torch

    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


ATTEMPTS = 3
"""How often a function must move a global stream before it is accused: another thread may have drawn meanwhile."""


def global_streams() -> dict[str, bytes | int]:
    """Return where the global random streams stand, torch's, numpy's and Python's, in a form that can be compared."""
    import numpy as np
    import torch

    # The legacy generator is exactly the one that must not be used, so its state is what is looked at.
    legacy: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "torch": b"".join(state.numpy().tobytes() for state in (torch.get_rng_state(), *devices)),
        "numpy": hash((legacy["state"]["pos"], legacy["state"]["key"].tobytes(), legacy["has_gauss"])),
        "Python": hash(random.getstate()),
    }


def watched(call: Callable[[], T], among: Collection[str] = ("torch", "numpy", "Python")) -> tuple[T, str]:
    """Call a function; return its result, and the name of a global stream that it moved every time it was called."""
    for _ in range(ATTEMPTS):
        before = global_streams()
        result = call()
        after = global_streams()
        moved = next((name for name in before if name in among and before[name] != after[name]), "")
        if not moved:
            break
    return result, moved
