"""Our empirical risks against the paper's: a number for how far they agree, and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.report.figures import MARKERS
from wsl_toolkit.studies.report.paper import PaperRisk
from wsl_toolkit.studies.report.statistics import Estimate, estimate
from wsl_toolkit.studies.report.tables import by_seed, published
from wsl_toolkit.system.figure_style import PALETTE, figure, plain

FEWEST = 4
"""Of fewer pairs a correlation of ranks says nothing."""


@attrs.frozen(kw_only=True)
class Beside:
    """A cell of ours and the paper's."""

    method: str
    ours: Estimate
    theirs: PaperRisk


def pairs(states: Sequence[CellState]) -> list[Beside]:
    """Return all cells that have a finite risk here and one in the paper."""
    found = []
    for state in states:
        risks = list(by_seed(state, "train/risk").values())
        theirs = published(state)
        if risks and theirs is not None and math.isfinite(sum(risks)):
            found.append(Beside(method=state.cell.method.label, ours=estimate(risks), theirs=theirs))
    return found


def agreement(states: Sequence[CellState]) -> str:
    """Return in a sentence how far the ranks of our risks are those of the paper's; nothing where few are there."""
    found = pairs(states)
    if len(found) < FEWEST:
        return ""
    means = _correlation([each.ours.mean for each in found], [each.theirs.mean for each in found])
    told = f" Rank correlation (Spearman) of our {len(found)} means with the paper's: {means}"
    with_error = [each for each in found if each.ours.stderr is not None]
    if len(with_error) >= FEWEST:
        errors = _correlation([each.ours.stderr for each in with_error], [each.theirs.stderr for each in with_error])
        told += f"; of the standard errors: {errors}"
    return f"{told}."


def _correlation(ours: Sequence[float | None], theirs: Sequence[float]) -> str:
    from scipy import stats

    if len(set(ours)) < 2 or len(set(theirs)) < 2:
        return "none, for they are all equal"
    return f"{float(stats.spearmanr(ours, theirs).statistic):.2f}"


def risks_against_paper(states: Sequence[CellState]) -> Any | None:
    """Draw our risks over the paper's with the standard errors of both; on the line they are equal."""
    found = [each for each in pairs(states) if each.ours.mean > 0]
    if len(found) < FEWEST:
        return None
    methods = list(dict.fromkeys(each.method for each in found))
    with figure(figsize=(4.8, 4.4)) as (canvas, axes):
        for number, method in enumerate(methods):
            own = [each for each in found if each.method == method]
            axes.errorbar(
                [each.theirs.mean for each in own],
                [each.ours.mean for each in own],
                xerr=[each.theirs.stderr for each in own],
                yerr=[each.ours.stderr or 0.0 for each in own],
                fmt=MARKERS[number % len(MARKERS)],
                color=PALETTE[number % len(PALETTE)],
                label=plain(method),
            )
        values = [value for each in found for value in (each.ours.mean, each.theirs.mean)]
        ends = [min(values) / 1.2, max(values) * 1.2]
        axes.plot(ends, ends, color="black", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="empirical risk, the paper's", ylabel="empirical risk, ours")
        axes.legend(fontsize="small")
    return canvas
