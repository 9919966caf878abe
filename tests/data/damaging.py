"""Damage to a dataset's file: whatever it is, loading ends well or with one line of explanation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wsl_toolkit.components import Dataset
from wsl_toolkit.errors import WslError


def damage(path: Path, places: Sequence[tuple[float, bytes]], cut: float) -> None:
    """Overwrite parts of a file, each at a share of its length, and cut it at another."""
    content = bytearray(path.read_bytes())
    for share, noise in places:
        start = int(share * len(content))
        content[start : start + len(noise)] = noise
    path.write_bytes(bytes(content[: int(cut * len(content))]))


def loads_or_says_why(dataset: Dataset, folder: Path) -> bool:
    """Return whether loading ended well or in one line; any other error goes on."""
    try:
        dataset.load(folder)
    except WslError as error:
        return "\n" not in str(error)
    return True
