"""Each method against each other in a setting: paired t-tests and Wilcoxon's, with Holm's correction."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import attrs

from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.report.statistics import SIGNIFICANCE, holm, paired_p_value, signed_rank_p_value
from wsl_toolkit.studies.report.tables import MANY_METHODS, NOTHING, Entry, Row, Table, by_seed, oracle_mark, rows_of


@attrs.frozen(kw_only=True)
class Pair:
    """Two methods on the trials that both have: the mean difference of their accuracies and what tests make of it."""

    first: str
    second: str
    trials: int
    difference: float
    t_test: float
    t_test_holm: float
    wilcoxon: float
    wilcoxon_holm: float


def pairs_of(row: Row) -> list[Pair]:
    """Return the tests of all pairs of methods in a setting; Holm's correction is over these pairs."""
    found = {state.cell.method.label: by_seed(state, "test/accuracy") for state in row.states}
    tested = []
    for first, second in itertools.combinations(found, 2):
        common = sorted(set(found[first]) & set(found[second]))
        if len(common) > 1:
            values = [found[first][seed] for seed in common], [found[second][seed] for seed in common]
            tested.append((first, second, *values))
    t_tests = [paired_p_value(one, other) for _, _, one, other in tested]
    signed = [signed_rank_p_value(one, other) for _, _, one, other in tested]
    return [
        Pair(
            first=first,
            second=second,
            trials=len(one),
            difference=statistics.fmean(one) - statistics.fmean(other),
            t_test=t,
            t_test_holm=t_holm,
            wilcoxon=w,
            wilcoxon_holm=w_holm,
        )
        for (first, second, one, other), t, t_holm, w, w_holm in zip(
            tested, t_tests, holm(t_tests), signed, holm(signed), strict=True
        )
    ]


def pair_tables(study: Study, states: Sequence[CellState]) -> list[Table]:
    """Return a matrix of p-values for each setting, unless there are more methods than anybody could read."""
    if len(study.methods) > MANY_METHODS:
        return []
    return [table for row in rows_of(study, states) if (table := _matrix(study, row)) is not None]


def _matrix(study: Study, row: Row) -> Table | None:
    pairs = pairs_of(row)
    if not pairs:
        return None
    labels = [state.cell.method.label for state in row.states]
    shown = {(pair.first, pair.second): pair.t_test_holm for pair in pairs}
    shown |= {(pair.second, pair.first): pair.wilcoxon_holm for pair in pairs}
    rows = tuple(
        (Entry(label), *(_p_entry(shown.get((label, other), math.nan)) for other in labels)) for label in labels
    )
    least = 2.0 ** (1 - max(pair.trials for pair in pairs))
    blunt = f" With so few trials Wilcoxon's p-value cannot be below {least:g}." if least > SIGNIFICANCE else ""
    return Table(
        key="p-values",
        title=f"p-values of paired tests of test accuracy: {row.setting.label}{oracle_mark(study)}",
        columns=("method", *labels),
        rows=rows,
        note=f"Above the diagonal: paired t-tests; below: Wilcoxon's signed-rank tests; both by Holm's correction for "
        f"{len(pairs)} comparison{'s' if len(pairs) > 1 else ''}. Bold: below 5 %.{blunt}",
    )


def _p_entry(p: float) -> Entry:
    if math.isnan(p):
        return Entry(NOTHING)
    return Entry("< 0.001" if p < 0.001 else f"{p:.3f}", bold=p < SIGNIFICANCE, value=p)
