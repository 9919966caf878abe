"""Tensors that are files: mapped into memory, so that the system reads what is looked at and drops it when it must."""

from __future__ import annotations

import mmap
from pathlib import Path
from weakref import WeakValueDictionary

import torch
from torch import Tensor

_MAPS: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()
"""Where mapped tensors begin, and their maps, which live as long as the tensors do."""


def map_bytes(path: Path, offset: int, shape: tuple[int, ...]) -> Tensor:
    """Return the bytes of a file from some place on as a tensor; nothing is read yet, and nothing written ever."""
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    flat = torch.frombuffer(pages, dtype=torch.uint8, offset=offset)
    _MAPS[flat.data_ptr()] = pages
    return flat.view(shape)


def is_mapped(x: Tensor) -> bool:
    """Return whether a tensor, from its first number on, is a file that `map_bytes` mapped."""
    return x.data_ptr() in _MAPS


def let_go(x: Tensor) -> None:
    """Let the system forget what was read of a mapped tensor; it is read again when it is looked at again.

    What has been read counts as this process's memory for as long as it is not let go. Other tensors stay as they are.
    """
    pages = _MAPS.get(x.data_ptr())
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
