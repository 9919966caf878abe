"""Means, standard errors, paired tests and ranks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import attrs

from wsl_toolkit.system.statistics import mean_and_error

SIGNIFICANCE = 0.05
FEW_TRIALS = 5
"""With fewer trials than this, a test that finds no difference says next to nothing."""
MOST_ENUMERATED = 15


@attrs.frozen
class Estimate:
    """A mean over trials and its standard error, which a single trial does not have."""

    mean: float
    stderr: float | None

    def show(self, digits: int, factor: float = 1.0) -> str:
        """Return 'mean ± error' with so many decimals."""
        if self.stderr is None:
            return f"{factor * self.mean:.{digits}f}"
        return f"{factor * self.mean:.{digits}f} ± {factor * self.stderr:.{digits}f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean and standard error."""
    return Estimate(*mean_and_error(values))


def paired_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the p-value of a two-sided paired t-test; equal differences decide without one."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        return math.nan
    spread = max(differences) - min(differences)
    if spread <= 1e-12 * max(1.0, max(abs(d) for d in differences)):
        return 1.0 if abs(differences[0]) <= 1e-12 else 0.0
    from scipy import stats

    return float(stats.ttest_rel(first, second).pvalue)


def signed_rank_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the p-value of Wilcoxon's two-sided signed-rank test: exact for up to 15 differences that are not zero.

    Differences of zero are left out and equal ones share their mean rank; under the null hypothesis every sign is as
    likely as its opposite, and the p-value is the share of all sign patterns that are at least as one-sided.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        return math.nan
    differences = [d for d in differences if abs(d) > 1e-12]
    if not differences:
        return 1.0
    if len(differences) > MOST_ENUMERATED:
        from scipy import stats

        return float(stats.wilcoxon(differences).pvalue)
    weights = list(ranks({str(place): -round(abs(d), 12) for place, d in enumerate(differences)}).values())
    sums = [0.0]
    for weight in weights:
        sums += [total + weight for total in sums]
    middle = sum(weights) / 2
    positive = sum(weight for weight, d in zip(weights, differences, strict=True) if d > 0)
    return sum(abs(total - middle) >= abs(positive - middle) - 1e-9 for total in sums) / len(sums)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down rule for having made so many tests; NaN stays and counts for none.

    Of m p-values in ascending order, the i-th becomes the largest of (m - j + 1) p_j over j <= i, and at most 1.
    """
    order = sorted((place for place, p in enumerate(p_values) if not math.isnan(p)), key=lambda place: p_values[place])
    corrected = list(p_values)
    largest = 0.0
    for step, place in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - step) * p_values[place]))
        corrected[place] = largest
    return corrected


def best_and_ties(trials: Mapping[str, Mapping[int, float]]) -> set[str]:
    """Return the method with the highest mean and those that a paired test cannot tell from it at 5 %.

    Trials are given by seed: methods share splits and candidate sets, so only seeds that both have are compared.
    """
    if not trials:
        return set()
    means = {name: statistics.fmean(values.values()) for name, values in trials.items()}
    best = max(means, key=lambda name: means[name])
    found = {best}
    for name, values in trials.items():
        common = sorted(set(values) & set(trials[best]))
        if name != best and len(common) > 1:
            p = paired_p_value([trials[best][seed] for seed in common], [values[seed] for seed in common])
            if p >= SIGNIFICANCE:
                found.add(name)
    return found


def ranks(values: Mapping[str, float]) -> dict[str, float]:
    """Return ranks from 1 for the largest value; equal values share the mean of their ranks."""
    found = {}
    for name, value in values.items():
        above = sum(other > value for other in values.values())
        equal = sum(other == value for other in values.values())
        found[name] = above + (equal + 1) / 2
    return found
