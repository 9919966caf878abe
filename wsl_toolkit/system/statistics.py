"""Mean and standard error of a few trials."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and its standard error; a single value has none."""
    mean = statistics.fmean(values)
    return mean, statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def summarise(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return `<metric>_mean` and, of several trials, `<metric>_stderr` for each metric of the first trial."""
    found: dict[str, float] = {}
    for name in trials[0] if trials else ():
        mean, error = mean_and_error([trial[name] for trial in trials if name in trial])
        found[f"{name}_mean"] = mean
        if error is not None:
            found[f"{name}_stderr"] = error
    return found
