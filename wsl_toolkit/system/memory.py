"""How much memory there is, and a clear message where it does not suffice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wsl_toolkit.errors import ResourceError

_TELLTALE = re.compile(r"out of memory|can't allocate memory|not enough memory|Cannot allocate memory|bad_alloc", re.I)
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
    """Return the bytes of memory that this process can have: its share, where a launcher started several here."""
    ranks_here = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return _free_memory() // (int(ranks_here) if ranks_here.isdigit() and int(ranks_here) else 1)


def _free_memory() -> int:
    """Return the bytes that are free, and those that the system would give back from its caches."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
