"""How much memory there is, and a clear message where it does not suffice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wsl_toolkit.errors import ConfigError, ResourceError

_TELLTALE = re.compile(r"out of memory|can't allocate memory|not enough memory|Cannot allocate memory|bad_alloc", re.I)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]B)", re.I)
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

HOST_BUDGET = "WSL_MEMORY"
"""The environment variable that says how much memory a process may count on."""
MEMORY_SHARE = 3
"""Inputs are kept in memory if they take no more than this fraction of what is free."""

_BYTES = re.compile(r"allocate (\d+) bytes|allocate ([\d.]+ [KMGT]iB)", re.I)


@contextmanager
def explain_memory(advice: str) -> Iterator[None]:
    """Turn every form of 'out of memory' into one line with what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error)
        if not isinstance(error, MemoryError) and not _TELLTALE.search(text):
            raise
        raise ResourceError(f"out of memory{_wanted(text)}: {advice}") from None


def _wanted(text: str) -> str:
    """Return how much was asked for, where the message says it."""
    match = _BYTES.search(text)
    if match is None:
        return ""
    size = f"{int(match[1]) / 2**20:,.0f} MiB" if match[1] else match[2]
    return f" when {size} more were needed"


def free_memory() -> int:
    """Return the bytes of memory that this process can have: its share, where a launcher started several here.

    `WSL_MEMORY` lowers it.
    """
    ranks_here = os.environ.get("LOCAL_WORLD_SIZE", "1")
    free = _free_memory() // (int(ranks_here) if ranks_here.isdigit() and int(ranks_here) else 1)
    return min(free, budget(HOST_BUDGET, free))


def budget(variable: str, otherwise: int) -> int:
    """Return the bytes that an environment variable allows, written as 8GB, 500MB or 2.5GB."""
    given = os.environ.get(variable, "").strip()
    if not given:
        return otherwise
    match = _SIZE.fullmatch(given)
    if match is None:
        raise ConfigError(f"{variable}={given!r} is no amount of memory: write 8GB, 2.5GB or 500MB, or unset it")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _free_memory() -> int:
    """Return the bytes that are free, and those that the system would give back from its caches."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
