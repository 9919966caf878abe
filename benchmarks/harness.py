"""Interleaved timing: every case runs once in each round, so that a busy machine disturbs all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def measure(cases: Mapping[str, Callable[[], Any]], rounds: int = 7) -> dict[str, list[float]]:
    """Return the seconds of every case in every round; a first, unrecorded round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], of: str, to: str) -> dict[str, float]:
    """Return the median ratio of two cases with its quartiles, round by round."""
    ratios = sorted(a / b for a, b in zip(seconds[of], seconds[to], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"median": middle, "q1": low, "q3": high}
