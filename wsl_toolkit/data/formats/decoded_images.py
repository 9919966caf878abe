"""Decoded images on disk: a safetensors file that is read whole, or mapped where memory is too small for it."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from wsl_toolkit.data.mapped import map_bytes
from wsl_toolkit.errors import DataError, one_line
from wsl_toolkit.system.files import replacing

READ_BYTES = 2**24
"""A file is hashed so many bytes at a time."""

log = logging.getLogger(__name__)


def load(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    """Return the images of a sound file, or None: a cache is never worth an error."""
    begins = _sound(path, shape)
    if begins is None:
        return None
    images = torch.empty(shape, dtype=torch.uint8)
    with path.open("rb") as file:
        file.seek(begins)
        file.readinto(images.numpy().data)
    return images


def mapped(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    """Return the images of a sound file without reading them into memory, or None."""
    begins = _sound(path, shape)
    return None if begins is None else map_bytes(path, begins, shape)


def save(path: Path, images: Tensor) -> None:
    """Keep images; where that fails, say so and go on without."""
    try:
        _write(path, tuple(images.shape), [images])
    except OSError as error:
        log.warning("decoded images are not kept: %s (choose another place with WSL_CACHE_DIR)", one_line(error))


def save_in_blocks(path: Path, shape: tuple[int, ...], blocks: Iterable[Tensor]) -> None:
    """Keep images that are decoded block by block, because memory is too small for all of them."""
    wanted = math.prod(shape)
    advice = (
        f"choose another place (WSL_CACHE_DIR), smaller images (--dataset-size), or, if there is more memory than "
        f"WSL_MEMORY says, let them be read into memory ({wanted / 1e9:.1f} GB and what training takes)"
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if free < wanted:
            raise DataError(
                f"{shape[0]:,} decoded images do not fit into memory and take {wanted / 1e9:.1f} GB on disk, but "
                f"{path.parent} has {free / 1e9:.1f} GB: {advice}"
            )
        _write(path, shape, blocks)
    except OSError as error:
        raise DataError(
            f"decoded images do not fit into memory and cannot be kept on disk: {one_line(error)}: {advice}"
        ) from None


def _write(path: Path, shape: tuple[int, ...], blocks: Iterable[Tensor]) -> None:
    """Write a safetensors file with a checksum of its content, which is known only at its end."""
    digest = hashlib.sha256()
    with replacing(path) as temporary, temporary.open("r+b") as file:
        file.write(_header(shape, digest.hexdigest()))
        for block in blocks:
            content = block.contiguous().numpy().data
            digest.update(content)
            file.write(content)
        file.seek(0)
        file.write(_header(shape, digest.hexdigest()))


def _header(shape: tuple[int, ...], checksum: str) -> bytes:
    """Return the beginning of a safetensors file: the length of a text, and that text, as long with any checksum."""
    images = {"dtype": "U8", "shape": list(shape), "data_offsets": [0, math.prod(shape)]}
    text = json.dumps({"__metadata__": {"sha256": checksum}, "images": images}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _sound(path: Path, shape: tuple[int, ...]) -> int | None:
    """Return where the images begin in a file of just these that has its checksum, or None."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            checksum = (file.metadata() or {}).get("sha256")
            found = file.get_slice("images")
            if found.get_shape() != list(shape) or found.get_dtype() != "U8":
                return None
        digest = hashlib.sha256()
        with path.open("rb") as content:
            begins = 8 + struct.unpack("<Q", content.read(8))[0]
            content.seek(begins)
            while part := content.read(READ_BYTES):
                digest.update(part)
    except (SafetensorError, OSError):
        return None
    return int(begins) if digest.hexdigest() == checksum else None
