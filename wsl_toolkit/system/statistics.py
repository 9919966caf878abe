"""Mean and standard error of a few trials, and the interval of a share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and its standard error; a single value has none."""
    mean = statistics.fmean(values)
    return mean, statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Return Wilson's interval of a share, 95 % unless another normal quantile is given; all of 0..1 of nothing.

    It holds the shares p that a normal test would not refuse: |successes/n - p| ≤ z √(p (1 - p) / n).
    """
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(0.0, centre - reach) if successes else 0.0, min(1.0, centre + reach) if successes < n else 1.0


def summarise(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return `<metric>_mean` and, of several trials, `<metric>_stderr` for each metric of the first trial."""
    found: dict[str, float] = {}
    for name in trials[0] if trials else ():
        mean, error = mean_and_error([trial[name] for trial in trials if name in trial])
        found[f"{name}_mean"] = mean
        if error is not None:
            found[f"{name}_stderr"] = error
    return found
