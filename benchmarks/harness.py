"""Interleaved timing: every case runs once in each round, so that a busy machine disturbs all alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs


def measure(
    cases: Mapping[str, Callable[[], Any]], rounds: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of every case in every round, by some clock; a first, unrecorded round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, case in cases.items():
            start = clock()
            case()
            if turn:
                seconds[name].append(clock() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], of: str, to: str, times: float = 1.0) -> dict[str, float]:
    """Return the median ratio of two cases with its quartiles, round by round; `of` is counted `times`."""
    return spread([times * a / b for a, b in zip(seconds[of], seconds[to], strict=True)])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the quartiles."""
    if len(values) == 1:
        return {"median": values[0], "q1": values[0], "q3": values[0]}
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high}


def exponent(seconds_by_size: Mapping[int, Sequence[float]]) -> float:
    """Return b of time = a size^b, by least squares on the logarithms of each size's fastest round."""
    points = [(math.log(size), math.log(min(seconds))) for size, seconds in seconds_by_size.items()]
    mean_x = statistics.fmean(x for x, _ in points)
    mean_y = statistics.fmean(y for _, y in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


@attrs.frozen(kw_only=True)
class Row:
    """One number of a benchmark, with its spread and what it should be."""

    what: str
    median: float
    q1: float | None = None
    q3: float | None = None
    unit: str = "×"
    at_most: float | None = None
    at_least: float | None = None

    @classmethod
    def of(cls, what: str, quartiles: Mapping[str, float], **facts: Any) -> Row:
        """Make a row of `spread`'s or `ratio`'s result."""
        return cls(what=what, median=quartiles["median"], q1=quartiles["q1"], q3=quartiles["q3"], **facts)

    @property
    def target(self) -> str:
        """What the number should be, or nothing."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else ""

    @property
    def met(self) -> bool | None:
        """Whether it is."""
        if self.at_most is not None:
            return self.median <= self.at_most
        return self.median >= self.at_least if self.at_least is not None else None


@attrs.frozen(kw_only=True)
class Section:
    """The numbers of one question, and the raw seconds behind them."""

    title: str
    note: str
    rows: tuple[Row, ...]
    details: dict[str, Any] = attrs.field(factory=dict)
