"""Wait for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], what: str = "it", seconds: float = 500, pause: float = 0.01) -> Any:
    """Wait for something to become true; return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(pause)
    raise AssertionError(f"{what}: not within {seconds:g} s")
