"""How much memory a file's content may take, known before any of it is taken: a few megabytes can hold gigabytes."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from wsl_toolkit.errors import ConfigError, DataError
from wsl_toolkit.system.memory import free_memory

VARIABLE = "WSL_MAX_DATA_GB"
"""The environment variable that sets the bound, in gigabytes."""

AT_LEAST, RATIO = 2 * 10**9, 100
"""Content may take two gigabytes, or a hundred times the file's size if that is more: real data compress less."""


@attrs.define
class Budget:
    """The bytes that the content of a file may still take."""

    left: int

    @classmethod
    def of(cls, path: Path) -> Budget:
        """Return what a file's content may take: what the user set, or else by the file's size and the free memory."""
        given = os.environ.get(VARIABLE)
        if given is None:
            return cls(min(max(AT_LEAST, RATIO * path.stat().st_size), free_memory()))
        try:
            return cls(int(float(given) * 10**9))
        except (ValueError, OverflowError):
            raise ConfigError(f"{VARIABLE} is a number of gigabytes, not {given!r}") from None

    def take(self, count: int, what: str) -> None:
        """Count bytes off before they are taken; refuse if fewer are left."""
        if count > self.left:
            raise DataError(
                f"{what} would take {_gigabytes(count)} of memory, more than the {_gigabytes(max(self.left, 0))} that "
                f"are left for a file of this size; if it is to be trusted, set {VARIABLE}={count // 10**9 + 1} or more"
            )
        self.left -= count


def _gigabytes(count: int) -> str:
    return f"{count / 10**9:,.1f} GB"
