"""How torch's threads wait for work; to be said before torch is imported."""

from __future__ import annotations

import os

SPINS = "5000"
"""Some microseconds: enough to bridge the gap to a step's next operation."""


def wait_politely() -> None:
    """Let idle threads sleep soon instead of spinning, unless the user has said how they shall wait.

    By default GNU's OpenMP spins for milliseconds. On a machine that others use too, a thread that spins takes the core
    from the one that it waits for: matrix products on two threads became 5 to 30 times slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
