"""Arrays of a NumPy archive: those that are asked for, their sizes checked before memory is taken, without pickle."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np

from wsl_toolkit.data.formats.size_bounds import Budget
from wsl_toolkit.errors import DataError

SINGLE = b"\x93NUMPY"


def read_arrays(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """Return those of the wanted arrays that there are; others are not even unpacked."""
    with path.open("rb") as file:
        if file.read(len(SINGLE)) == SINGLE:
            raise DataError("it is a single array; an .npz archive with x, y and candidates is needed")
    budget = Budget.of(path)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        found = {}
        for name in wanted:
            if name in members:
                with archive.open(members[name]) as member:
                    found[name] = _read(member, members[name].file_size, name, budget)
        if not found:
            raise DataError(f"it has none of the arrays {', '.join(wanted)}, only {_listed(members)}")
    return found


def _read(member: IO[bytes], size: int, name: str, budget: Budget) -> np.ndarray:
    """Read one array; its header must announce as many bytes as the archive does."""
    shape, _, kind = _header(member)
    announced = math.prod(shape) * kind.itemsize
    budget.take(announced, f"array {name!r}")
    if not kind.hasobject and announced + member.tell() != size:
        raise DataError(
            f"array {name!r} is damaged: {size - member.tell():,} bytes for a shape that needs {announced:,}"
        )
    member.seek(0)
    array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
    return array


def _header(member: IO[bytes]) -> Any:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(member)
    return np.lib.format.read_array_header_2_0(member)


def _listed(members: Collection[str], most: int = 12) -> str:
    shown = ", ".join(list(members)[:most]) or "nothing"
    return f"{shown}, …" if len(members) > most else shown
