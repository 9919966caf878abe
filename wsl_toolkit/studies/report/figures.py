"""The figures of a report: accuracy against epoch as in Figures 4 and 5, and heat maps of the search."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from wsl_toolkit.runs.curves import mean_and_band
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study, component_label
from wsl_toolkit.studies.report.tables import Row, oracle_mark, rows_of
from wsl_toolkit.studies.selection import varying
from wsl_toolkit.system.figure_style import PALETTE, figure, plain

PANEL = (3.4, 2.6)
MOST_WRITTEN = 64
"""Heat maps of more places than this have no numbers in them."""
MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":", "-.")
MOST_PANELS = 4
"""How many panels stand side by side at most."""
MOST_LINES = 16
"""More methods than this cannot be told apart in one panel."""


def line_look(number: int) -> dict[str, str]:
    """Return a method's colour and dashes; no two of the first 32 look alike."""
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": DASHES[number // len(PALETTE) % len(DASHES)]}


def accuracy_curves(study: Study, states: Sequence[CellState]) -> Any | None:
    """Return test accuracy against epoch: a column for each dataset and network, a row for each way of labelling."""
    canvas = _curves(study, states, "test/accuracy", "test accuracy")
    for panel in canvas.axes if canvas else ():
        if panel.lines:
            _begin_after_the_climb(panel)
    return canvas


def _begin_after_the_climb(panel: Any) -> None:
    """Let the axis begin where curves are after a fiftieth of the epochs: the first climb would flatten the rest."""
    settled = [list(line.get_ydata())[len(line.get_ydata()) // 50 :] for line in panel.lines]
    lowest, highest = min(map(min, settled)), max(map(max, settled))
    if lowest < highest:
        panel.set_ylim(bottom=lowest - 0.05 * (highest - lowest), top=highest + 0.05 * (highest - lowest))


def risk_curves(study: Study, states: Sequence[CellState]) -> Any | None:
    """Return empirical risk against epoch, in the same arrangement."""
    return _curves(study, states, "train/risk", "empirical risk")


def _curves(study: Study, states: Sequence[CellState], metric: str, ylabel: str) -> Any | None:
    rows = [r for r in rows_of(study, states) if any(metric in t.history for s in r.states for t in s.finished)]
    if not rows:
        return None
    rows, counts = arranged(rows)
    columns = 2 * max(counts)
    legend = 0.4 + 0.2 * math.ceil(len(study.methods) / columns)
    size = (PANEL[0] * max(counts), PANEL[1] * len(counts) + legend)
    with figure(figsize=size) as (canvas, empty):
        empty.remove()
        panels = filled_rows(canvas, counts)
        for panel, row in zip(panels, rows, strict=True):
            for number, state in enumerate(row.states):
                curves = [trial.history[metric] for trial in state.finished if metric in trial.history]
                if curves:
                    shortest = min(map(len, curves))
                    same_length = [curve[:shortest] for curve in curves]
                    mean_and_band(panel, same_length, plain(state.cell.method.label), **line_look(number))
            panel.set_title(plain(f"{_data_label(row)}, {row.setting.sets_label}"), fontsize="small")
            panel.set_xlabel("epoch")
            panel.xaxis.get_major_locator().set_params(integer=True)
            panel.set_ylabel(ylabel)
        lines = {line.get_label(): line for panel in panels for line in panel.lines}
        canvas.legend(handles=list(lines.values()), loc="outside lower center", fontsize="small", ncols=columns)
        if mark := oracle_mark(study).strip():
            canvas.suptitle(mark, fontsize="small")
    return canvas


def arranged(rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
    """Return settings in the order of their panels, and how many panels each line of a figure has.

    Where every dataset and network comes with every way of labelling, a column is a dataset and a line is a way of
    labelling; any other mix is laid out line by line.
    """
    across = list(dict.fromkeys(_data_label(row) for row in rows))
    down = list(dict.fromkeys(row.setting.sets_label for row in rows))
    whole = len(rows) == len(across) * len(down) == len({_place(row) for row in rows})
    if whole and len(across) > 1 and len(across) <= MOST_PANELS:
        order = sorted(rows, key=lambda row: (down.index(row.setting.sets_label), across.index(_data_label(row))))
        return order, [len(across)] * len(down)
    order = sorted(rows, key=lambda row: across.index(_data_label(row)))
    return order, even_lines(len(rows))


def even_lines(count: int, most: int = MOST_PANELS) -> list[int]:
    """Return how many panels each line has: as equal as can be, the longer lines first, and none empty."""
    lines = math.ceil(count / most)
    return [count // lines + (line < count % lines) for line in range(lines)]


def filled_rows(canvas: Any, counts: Sequence[int]) -> list[Any]:
    """Return panels line by line, each line as wide as the figure, whatever number of panels it has."""
    width = math.lcm(*counts)
    grid = canvas.add_gridspec(len(counts), width)
    return [
        canvas.add_subplot(grid[line, place * (width // count) : (place + 1) * (width // count)])
        for line, count in enumerate(counts)
        for place in range(count)
    ]


def risk_spread(study: Study, states: Sequence[CellState]) -> Any | None:
    """Return how much the empirical risk varies over trials, by method and setting: the paper's bold numbers."""
    rows = [row for row in rows_of(study, states) if any(len(_last(s, "train/risk")) > 1 for s in row.states)]
    if not rows:
        return None
    labels = [f"{_data_label(row)}, {row.setting.sets_label}" for row in rows]
    with figure(figsize=(6.4, 1.4 + 0.34 * len(rows))) as (canvas, axes):
        for number, method in enumerate(study.methods):
            found = {
                place: statistics.stdev(values)
                for place, row in enumerate(rows)
                for state in row.states
                if state.cell.method.label == method.label and len(values := _last(state, "train/risk")) > 1
            }
            # A little apart from each other, so that equal values stay visible.
            apart = min(0.12, 0.8 / len(study.methods))
            heights = [place + apart * (number - (len(study.methods) - 1) / 2) for place in found]
            colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
            axes.plot(list(found.values()), heights, marker, color=colour, label=plain(method.label))
        axes.set_yticks(range(len(rows)), labels, fontsize="x-small", parse_math=False)
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel=f"standard deviation of the risk over trials{oracle_mark(study)}")
        if all(value > 0 for line in axes.lines for value in line.get_xdata()):
            axes.set_xscale("log")
        axes.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    return canvas


def _last(state: CellState, metric: str) -> list[float]:
    return [trial.history[metric][-1] for trial in state.finished if metric in trial.history]


def heat_maps(study: Study, row: Row) -> Any | None:
    """Return the rule's score over the two main axes of the search, one panel a method; a cross marks the choice."""
    searched = [state for state in row.states if state.searches and state.searches[0].scored]
    axes = [_axes(state) for state in searched]
    shown = [(state, names) for state, names in zip(searched, axes, strict=True) if names is not None]
    if not shown:
        return None
    counts = even_lines(len(shown))
    wide = max(PANEL[0], *(1.4 + 0.45 * len(state.cell.space[across]) for state, (_, across) in shown))
    high = max(PANEL[1], *(1.1 + 0.3 * len(state.cell.space[down]) for state, (down, _) in shown))
    with figure(figsize=(wide * max(counts), high * len(counts) + 0.4)) as (canvas, empty):
        empty.remove()
        for panel, (state, (down, across)) in zip(filled_rows(canvas, counts), shown, strict=True):
            _heat_map(panel, state, down, across)
        canvas.suptitle(
            plain(f"{row.setting.label}: {study.selection.measure.name}{oracle_mark(study)}"), fontsize="small"
        )
    return canvas


def _axes(state: CellState) -> tuple[str, str] | None:
    """Return the first two searched names that are lists of numbers and differ."""
    points = [scored.point for scored in state.searches[0].scored]
    space = state.cell.space
    names = [name for name in varying(points) if isinstance(space.get(name), list)]
    return (names[0], names[1]) if len(names) >= 2 else None


def _heat_map(panel: Any, state: CellState, down: str, across: str) -> None:
    import numpy as np

    search, space = state.searches[0], state.cell.space
    best = max if state.cell.study.selection.measure.sign > 0 else min
    found: dict[tuple[int, int], list[float]] = {}
    for scored in search.scored:
        if scored.value is not None:
            place = (space[down].index(scored.point[down]), space[across].index(scored.point[across]))
            found.setdefault(place, []).append(scored.value)
    values = np.full((len(space[down]), len(space[across])), np.nan)
    for place, scores in found.items():
        values[place] = best(scores)  # where more than two things are searched: the best over the others
    low, high, cut = colour_range([best(scores) for scores in found.values()], more_is_better=best is max)
    cmap = "viridis" if best is max else "viridis_r"
    image = panel.imshow(values, aspect="auto", cmap=cmap, origin="lower", vmin=low, vmax=high)
    panel.figure.colorbar(image, ax=panel, extend=cut, format="%.3g")
    if values.size <= MOST_WRITTEN:
        for (y, x), value in np.ndenumerate(values):
            text = "–" if np.isnan(value) else f"{value:.3g}"
            level = 0.0 if np.isnan(value) else image.norm(value)
            dark = (level if best is max else 1 - level) < 0.6
            panel.text(x, y - 0.3, text, ha="center", va="center", fontsize=5.5, color="white" if dark else "black")
    if search.chosen is not None:
        point = search.chosen.point
        x, y = space[across].index(point[across]), space[down].index(point[down])
        panel.plot(x, y, "X", color="white", markeredgecolor="black", markersize=8)
    panel.set_xticks(range(len(space[across])), [_tick(v) for v in space[across]], rotation=45, fontsize="x-small")
    panel.set_yticks(range(len(space[down])), [_tick(v) for v in space[down]], fontsize="x-small")
    panel.set_xlabel(plain(across))
    panel.set_ylabel(plain(down))
    panel.set_title(plain(state.cell.method.label), fontsize="small")
    panel.grid(visible=False)


def _tick(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else plain(str(value))


def colour_range(values: Sequence[float], *, more_is_better: bool) -> tuple[float, float, str]:
    """Return the ends of a colour scale, and which of them cuts values off ("neither", "min" or "max").

    The scale goes from the best value to three times the median's distance from it, so that a few points which learned
    nothing do not give all others one colour; equal values get a scale of some width.
    """
    if not values:
        return 0.0, 1.0, "neither"
    best, worst = (max(values), min(values)) if more_is_better else (min(values), max(values))
    middle = statistics.median(values)
    end = worst if middle == best else best + 3 * (middle - best)
    end = max(end, worst) if more_is_better else min(end, worst)
    cut = "neither" if math.isclose(end, worst) else "min" if more_is_better else "max"
    if best == worst:
        half = max(abs(best) * 0.01, 1e-3)
        return best - half, best + half, "neither"
    return min(best, end), max(best, end), cut


def _place(row: Row) -> tuple[str, str]:
    return row.setting.sets_label, _data_label(row)


def _data_label(row: Row) -> str:
    return f"{row.setting.data_label}, {component_label(row.setting.backbone)}"
