"""Who is ahead over several settings: mean ranks, Friedman's test, and Nemenyi's critical difference.

Demšar. Statistical Comparisons of Classifiers over Multiple Data Sets. JMLR, 2006.

    CD = q_α √(k(k+1) / (6N)) for k methods on N settings, q_α the studentised range's quantile divided by √2
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.report.statistics import SIGNIFICANCE, estimate, ranks
from wsl_toolkit.studies.report.tables import Entry, Row, Table, by_seed, oracle_mark, rows_of


@attrs.frozen(kw_only=True)
class Ranking:
    """Methods by their mean rank over the same settings; 1 is best."""

    mean: dict[str, float]
    """From the best to the worst."""
    first: dict[str, int]
    """How often each has rank 1."""
    settings: int
    left_out: tuple[str, ...] = ()
    """Methods that have no result in some of these settings."""
    p_value: float | None
    """Of Friedman's test that all methods are equally good; None where there is too little to test."""
    critical_difference: float | None
    """Mean ranks that differ by less cannot be told apart at 5 %."""

    def groups(self) -> list[tuple[str, ...]]:
        """Return the largest sets of at least two neighbours whose mean ranks differ by less than the difference."""
        if self.critical_difference is None:
            return []
        names = list(self.mean)
        found: list[tuple[int, int]] = []
        for start, name in enumerate(names):
            near = [
                i for i in range(start, len(names)) if self.mean[names[i]] - self.mean[name] < self.critical_difference
            ]
            stop = near[-1] + 1
            if stop - start > 1 and (not found or stop > found[-1][1]):
                found.append((start, stop))
        return [tuple(names[start:stop]) for start, stop in found]


def friedman_p_value(values: Mapping[str, Sequence[float]]) -> float | None:
    """Return the p-value of Friedman's test, one value a setting for each method; None for fewer than 3 methods."""
    if len(values) < 3 or len(next(iter(values.values()))) < 2:
        return None
    if all(len(set(scores)) == 1 for scores in zip(*values.values(), strict=True)):
        return 1.0  # all methods are equal in every setting
    from scipy import stats

    return float(stats.friedmanchisquare(*values.values()).pvalue)


def critical_difference(methods: int, settings: int, significance: float = SIGNIFICANCE) -> float | None:
    """Return Nemenyi's critical difference of mean ranks."""
    if methods < 2 or settings < 2:
        return None
    from scipy import stats

    quantile = float(stats.studentized_range.ppf(1 - significance, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * settings))


def ranking(study: Study, states: Sequence[CellState]) -> Ranking | None:
    """Rank methods by mean test accuracy; one all of whose trials diverged in a setting is last there.

    A study that is not complete is ranked as far as it goes: settings in which fewer than half of the methods have a
    result do not count, and then methods without one in some setting do not.
    """
    found = [_scores(row) for row in rows_of(study, states)]
    found = [scores for scores in found if 2 * len(scores) >= len(study.methods)]
    labels = [method.label for method in study.methods if all(method.label in scores for scores in found)]
    if not found or len(labels) < 2:
        return None
    scores = [{label: each[label] for label in labels} for each in found]
    ranked = [ranks(each) for each in scores]
    mean = {label: sum(r[label] for r in ranked) / len(ranked) for label in labels}
    order = sorted(labels, key=lambda label: mean[label])
    return Ranking(
        mean={label: mean[label] for label in order},
        first={label: sum(r[label] == 1 for r in ranked) for label in order},
        settings=len(ranked),
        left_out=tuple(method.label for method in study.methods if method.label not in labels),
        p_value=friedman_p_value({label: [each[label] for each in scores] for label in labels}),
        critical_difference=critical_difference(len(labels), len(ranked)),
    )


def _scores(row: Row) -> dict[str, float]:
    """Return the mean accuracy in a setting of each method that has come so far."""
    found: dict[str, float] = {}
    for state in row.states:
        values = by_seed(state, "test/accuracy")
        if values or state.done:
            found[state.cell.method.label] = estimate(list(values.values())).mean if values else -math.inf
    return found


def rank_table(study: Study, states: Sequence[CellState]) -> Table | None:
    """Return the mean rank of each method by accuracy, over the settings that most of them have a result in."""
    found = ranking(study, states)
    if found is None:
        return None
    best = min(found.mean.values())
    note = f"Over {found.settings} setting{'s' if found.settings > 1 else ''}; 1 is best."
    if found.left_out:
        note += f" Not ranked, since without a result in some of them: {', '.join(found.left_out)}."
    if found.p_value is not None:
        note += f" Friedman's test that all are equally good: p = {found.p_value:.2g}."
    if found.critical_difference is not None:
        note += f" Mean ranks closer than {found.critical_difference:.2f} cannot be told apart at 5 % (Nemenyi)."
    return Table(
        key="ranks",
        title=f"Mean rank by test accuracy{oracle_mark(study)}",
        columns=("method", "mean rank", "times first"),
        rows=tuple(
            (
                Entry(label),
                Entry(f"{mean:.2f}", bold=mean == best, value=mean),
                Entry(str(found.first[label]), value=found.first[label]),
            )
            for label, mean in found.mean.items()
        ),
        note=note,
    )
