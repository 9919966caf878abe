"""Out of memory, said so that one knows what to lower."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

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
