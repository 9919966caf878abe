"""Figures of `wsl verify`: the matrix as a heat map, and what Monte Carlo shows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from wsl_toolkit.system.figure_style import STYLE, figure, save
from wsl_toolkit.theory.verification import Cell, Matrix, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from wsl_toolkit.theory.monte_carlo import Consistency, LearnedBias
    from wsl_toolkit.theory.verification import Column

RIGHT = "#9FD8C4"
"""A light tint of the palette's green: what is as good as can be."""
SOUND = "#CFE6F3"
"""A light tint of its blue: not unbiased, but a bound or a right minimiser."""
WRONG = "#F3D9B1"
"""A light tint of its orange: a minimiser that misleads."""
BLANK = "#EFEFEF"
MARKERS = "osD^vP"
BIAS_RANGE = (1e-2, 10.0)
"""Biases are coloured on a logarithmic scale between these."""


def draw_matrix(matrix: Matrix, path: Path) -> None:
    """Draw a matrix to a file."""
    save(matrix_figure(matrix), path, dpi=STYLE["savefig.dpi"])


def matrix_figure(matrix: Matrix) -> Any:
    """Return who is unbiased where: colour is the size of the bias, a frame is a promise."""
    rows, columns = len(matrix.rows), len(matrix.columns)
    with figure(figsize=(3.0 + 0.78 * columns, 1.9 + 0.44 * rows)) as (canvas, axes):
        axes.grid(False)
        for i, row in enumerate(matrix.rows):
            for j, column in enumerate(matrix.columns):
                _draw_cell(axes, i, j, matrix.cells[row.name, column.name], matrix.instances)
        _label_axes(axes, matrix)
        _group(axes, matrix.columns)
        canvas.colorbar(_bias_scale(), ax=axes, shrink=0.6, aspect=24, pad=0.015, label="largest |bias|", extend="both")
        axes.set_title(
            f"Exact bias at K = {matrix.num_classes}, every candidate set enumerated", loc="left", fontsize=12, pad=64
        )
        axes.xaxis.set_label_position("bottom")
        axes.set_xlabel(
            f"0  unbiased      ≥  upper bound of the risk      +0.31  bias, the largest of {matrix.instances} instances"
            "      σ  deviation of the loss given x\n"
            f"◆  bias n/a, right minimiser      ◇ k  minimiser right at k of {matrix.instances} instances"
            "      frame  promised",
            loc="left",
            labelpad=26,
            fontsize=8.5,
            color="0.25",
            linespacing=1.7,
        )
    return canvas


def _bias_scale() -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    tints = LinearSegmentedColormap.from_list("bias", ["#FCE8DC", "#EFA06B", "#D55E00", "#8A3B00"])
    return ScalarMappable(norm=LogNorm(*BIAS_RANGE), cmap=tints)


def _draw_cell(axes: Any, i: int, j: int, cell: Cell, instances: int) -> None:
    from matplotlib.patches import Rectangle

    colour, text, ink = _look(cell, instances)
    axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=1.5))
    if cell.promised:
        axes.add_patch(
            Rectangle(
                (j - 0.46, i - 0.45),
                0.92,
                0.9,
                facecolor="none",
                edgecolor="#D00000" if cell.broken else "0.25",
                linewidth=2.2 if cell.broken else 0.9,
                zorder=3,
            )
        )
    has_deviation = cell.standard_deviation is not None
    axes.text(j, i - 0.12 * has_deviation, text, ha="center", va="center", fontsize=9, color=ink)
    if cell.standard_deviation is not None:
        axes.text(
            j, i + 0.25, f"σ {cell.standard_deviation:.2f}", ha="center", va="center", fontsize=6, color=ink, alpha=0.8
        )


def _look(cell: Cell, instances: int) -> tuple[Any, str, str]:
    """Return a cell's colour, its words and the colour of these."""
    if cell.verdict in (Verdict.BIASED, Verdict.NO_BOUND) and cell.bias is not None:
        size = abs(cell.bias)
        dark = size > math.sqrt(BIAS_RANGE[0] * BIAS_RANGE[1]) * 3
        words = f"{cell.bias:+.2f}" if size >= 0.005 else f"{cell.bias:+.0e}"
        return _bias_scale().to_rgba(size), words, "white" if dark else "black"
    return {
        Verdict.UNBIASED: (RIGHT, "0", "black"),
        Verdict.UPPER_BOUND: (SOUND, "≥", "black"),
        Verdict.CONSISTENT: (SOUND, "◆", "black"),
        Verdict.INCONSISTENT: (WRONG, f"◇ {cell.right}", "black"),
        Verdict.FAILED: (BLANK, "failed", "#D00000"),
    }.get(cell.verdict, (BLANK, "n/a", "0.5"))


def _label_axes(axes: Any, matrix: Matrix) -> None:
    rows, columns = len(matrix.rows), len(matrix.columns)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.xaxis.tick_top()
    axes.set_xticks(range(columns), [column.name for column in matrix.columns], rotation=35, ha="left", fontsize=9)
    axes.set_yticks(range(rows), [f"{row.name}" for row in matrix.rows], fontsize=9)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _group(axes: Any, columns: Sequence[Column]) -> None:
    """Name the settings below the matrix's columns, a line under each group."""
    rows = axes.get_ylim()[0]
    start = 0
    for j in range(1, len(columns) + 1):
        if j == len(columns) or columns[j].setting != columns[start].setting:
            axes.plot([start - 0.42, j - 0.58], [rows + 0.12] * 2, color="0.4", linewidth=1.2, clip_on=False)
            axes.text((start + j - 1) / 2, rows + 0.2, str(columns[start].setting), ha="center", va="top", fontsize=9)
            start = j


def draw_monte_carlo(consistency: Consistency, bias: LearnedBias | None, generator: str, path: Path) -> None:
    """Draw excess risk against n on log-log axes, and beside it the bias of learned confidences against time."""
    panels = 1 if bias is None else 2
    with figure(figsize=(6.4 * panels, 4.6), ncols=panels, squeeze=False) as (canvas, axes):
        _draw_consistency(axes[0, 0], consistency, generator)
        if bias is not None:
            _draw_bias(axes[0, 1], bias)
        save(canvas, path)


def _draw_consistency(axes: Any, result: Consistency, generator: str) -> None:
    sizes = list(result.sizes)
    curves = {f"{names}  (slope {result.slope(names.split(', ')[0]):.2f})": v for names, v in _merged(result.excess)}
    _draw_curves(axes, sizes, curves)
    axes.plot(sizes, result.bound, color="0.35", linestyle="--", linewidth=1.2, label="bound of Theorem 4")
    top = max(float(values.mean(-1)[0]) for values in result.excess.values()) * 2.2
    for power, words in ((-0.5, "slope −1/2"), (-1.0, "slope −1")):
        guide = [top * (n / sizes[0]) ** power for n in sizes]
        axes.plot(sizes, guide, color="0.6", linestyle=":", linewidth=1.2, zorder=1)
        axes.text(sizes[-1] * 1.06, guide[-1], words, va="center", fontsize=8, color="0.4")
    axes.set(xscale="log", yscale="log", xlabel="training examples n", ylabel="excess risk  R(f̂) − R(f*)")
    axes.set_xlim(sizes[0] * 0.8, sizes[-1] * 2.1)
    axes.set_title(f"Consistency under {generator}", loc="left")
    axes.legend(fontsize=8, loc="lower left")


def _draw_bias(axes: Any, bias: LearnedBias) -> None:
    from wsl_toolkit.theory.monte_carlo import BIAS_EXAMPLES

    at = [max(moment, 0.5) for moment in bias.moments]  # step 0 has its place on a logarithmic axis too
    _draw_curves(axes, at, {f"{names}, learned confidences": v for names, v in _merged(bias.learned)})
    oracle = next(iter(bias.oracle.values())).mean(-1)
    axes.plot(at, oracle, color="black", linestyle="--", linewidth=1.4, label="true p(y|x)")
    axes.set_xscale("log")
    axes.set_xticks(at, [str(moment) for moment in bias.moments])
    axes.minorticks_off()
    axes.set(xlabel="training steps", ylabel="bias of the risk estimate")
    axes.set_title(f"What learned confidences cost, n = {BIAS_EXAMPLES}", loc="left")
    axes.legend(fontsize=8)


def _draw_curves(axes: Any, at: Sequence[float], curves: Mapping[str, Tensor]) -> None:
    """Draw means with bands of a standard error; lines below are thicker, so that near coincidence stays visible."""
    from wsl_toolkit.theory.monte_carlo import standard_error

    for k, (label, values) in enumerate(curves.items()):
        mean, error = values.mean(-1), standard_error(values)
        width = 1.4 + 1.1 * (len(curves) - 1 - k)
        (line,) = axes.plot(at, mean, marker=MARKERS[k % len(MARKERS)], linewidth=width, label=label)
        axes.fill_between(at, mean - error, mean + error, color=line.get_color(), alpha=0.18, linewidth=0)


def _merged(curves: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Return the curves with those that are the same under one name, 'ppl, rc'."""
    groups: list[tuple[list[str], Tensor]] = []
    for name, values in curves.items():
        for names, known in groups:
            if torch.allclose(known, values, rtol=1e-6, atol=0):
                names.append(name)
                break
        else:
            groups.append(([name], values))
    return [(", ".join(names), values) for names, values in groups]
