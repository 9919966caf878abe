"""The critical-difference diagram: methods on an axis of mean ranks, bars over those that cannot be told apart."""

from __future__ import annotations

import math
from typing import Any

from wsl_toolkit.studies.report.ranking import Ranking
from wsl_toolkit.system.figure_style import PALETTE, figure, plain

LABEL_HEIGHT = 0.2
BAR_HEIGHT = 0.14


def critical_difference_diagram(ranking: Ranking | None) -> Any | None:
    """Draw Demšar's diagram, the better half of the methods on the left; None where there is no difference to draw."""
    if ranking is None or ranking.critical_difference is None:
        return None
    groups = ranking.groups()
    lines = math.ceil(len(ranking.mean) / 2)
    height = 1.0 + BAR_HEIGHT * len(groups) + LABEL_HEIGHT * lines
    with figure(figsize=(8.4, height)) as (canvas, axes):
        _axis(axes, ranking)
        for level, group in enumerate(groups):
            ends = [ranking.mean[group[0]] - 0.05, ranking.mean[group[-1]] + 0.05]
            depth = -BAR_HEIGHT * (level + 1)
            axes.plot(ends, [depth, depth], color=PALETTE[0], linewidth=3, solid_capstyle="butt")
        _labels(axes, ranking, top=-BAR_HEIGHT * (len(groups) + 1))
        axes.set_ylim(-BAR_HEIGHT * (len(groups) + 1) - LABEL_HEIGHT * (lines + 0.5), 0.75)
    return canvas


def _axis(axes: Any, ranking: Ranking) -> None:
    """Draw the line of ranks, 1 on the left, and the difference above it."""
    last = len(ranking.mean)
    step = max(1, math.ceil(last / 12))
    axes.set_axis_off()
    axes.plot([1, last], [0, 0], color="black", linewidth=1)
    for rank in sorted({1, *range(step, last + 1, step), last}):
        axes.plot([rank, rank], [0, 0.06], color="black", linewidth=1)
        axes.text(rank, 0.1, str(rank), ha="center", va="bottom", fontsize="small")
    difference = ranking.critical_difference or 0.0
    axes.plot([1, 1 + difference], [0.48, 0.48], color="black", linewidth=1.6)
    words = f"CD = {difference:.2f} ({last} methods, {ranking.settings} settings)"
    axes.text(1, 0.54, words, ha="left", va="bottom", fontsize="small")


def _labels(axes: Any, ranking: Ranking, top: float) -> None:
    """Lead each method from its rank down to its name: the better half to the left, the others to the right."""
    names = list(ranking.mean)
    half = math.ceil(len(names) / 2)
    margin = 0.06 * len(names)
    for side, part in (("left", names[:half]), ("right", names[half:][::-1])):
        end = 1 - margin if side == "left" else len(names) + margin
        align = "right" if side == "left" else "left"
        for line, name in enumerate(part):
            mean, depth = ranking.mean[name], top - LABEL_HEIGHT * line
            axes.plot([mean, mean, end], [0, depth, depth], color="black", linewidth=0.6)
            text = f"{plain(name)} {mean:.1f}" if side == "left" else f"{mean:.1f} {plain(name)}"
            axes.text(end, depth, f" {text} ", ha=align, va="center", fontsize="small")
    axes.set_xlim(1 - margin - 0.42 * len(names), len(names) + margin + 0.42 * len(names))
