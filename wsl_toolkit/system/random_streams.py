"""Independent random streams by purpose, so that changing the method does not change the data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def stream_seed(seed: int, purpose: str) -> int:
    """Return the seed of one purpose's stream, unrelated to the others'."""
    digest = hashlib.sha256(f"wsl stream {seed} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, purpose: str, device: str | torch.device = "cpu") -> torch.Generator:
    """Return one purpose's random stream, at its beginning."""
    import torch

    return torch.Generator(device).manual_seed(stream_seed(seed, purpose))
