"""The figures of a report: accuracy against epoch as in Figures 4 and 5, and heat maps of the search."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from wsl_toolkit.runs.curves import mean_and_band
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study, component_label
from wsl_toolkit.studies.report.tables import Row, oracle_mark, rows_of
from wsl_toolkit.studies.selection import METRICS, varying
from wsl_toolkit.system.figure_style import PALETTE, figure, plain

PANEL = (3.4, 2.6)
MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":", "-.")
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
    across = list(dict.fromkeys(_data_label(row) for row in rows))
    down = list(dict.fromkeys(row.setting.sets_label for row in rows))
    places = {_place(row): (down.index(row.setting.sets_label), across.index(_data_label(row))) for row in rows}
    if len(across) == 1:  # one dataset: its panels side by side
        places = {key: (column, number) for key, (number, column) in places.items()}
    height, width = (1 + max(place[i] for place in places.values()) for i in (0, 1))
    size = (PANEL[0] * width, PANEL[1] * height + 0.6 + 0.2 * len(study.methods) / (2 * width))
    with figure(nrows=height, ncols=width, squeeze=False, figsize=size, sharex=True) as (canvas, panels):
        for panel in panels.flat:
            panel.set_visible(False)
        for row in rows:
            panel = panels[places[_place(row)]]
            panel.set_visible(True)
            for number, state in enumerate(row.states):
                curves = [trial.history[metric] for trial in state.finished if metric in trial.history]
                if curves:
                    mean_and_band(panel, curves, plain(state.cell.method.label), **line_look(number))
            panel.set_title(plain(f"{_data_label(row)}, {row.setting.sets_label}"), fontsize="small")
            panel.set_xlabel("epoch")
            panel.set_ylabel(ylabel)
        lines = {line.get_label(): line for panel in panels.flat for line in panel.lines}
        canvas.legend(handles=list(lines.values()), loc="outside lower center", fontsize="small", ncols=2 * width)
        if mark := oracle_mark(study).strip():
            canvas.suptitle(mark, fontsize="small")
    return canvas


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
            heights = [place + 0.12 * (number - (len(study.methods) - 1) / 2) for place in found]
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
    with figure(ncols=len(shown), squeeze=False, figsize=(PANEL[0] * len(shown), PANEL[1] + 0.5)) as (canvas, panels):
        for panel, (state, (down, across)) in zip(panels[0], shown, strict=True):
            _heat_map(panel, state, down, across)
        canvas.suptitle(
            plain(f"{row.setting.label}: {METRICS[study.selection.rule][0]}{oracle_mark(study)}"), fontsize="small"
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
    rule = state.cell.study.selection.rule
    best = max if METRICS[rule][1] > 0 else min
    found: dict[tuple[int, int], list[float]] = {}
    for scored in search.scored:
        if scored.value is not None:
            place = (space[down].index(scored.point[down]), space[across].index(scored.point[across]))
            found.setdefault(place, []).append(scored.value)
    values = np.full((len(space[down]), len(space[across])), np.nan)
    for place, scores in found.items():
        values[place] = best(scores)  # where more than two things are searched: the best over the others
    image = panel.imshow(values, aspect="auto", cmap="viridis", origin="lower")
    panel.figure.colorbar(image, ax=panel)
    if search.chosen is not None:
        point = search.chosen.point
        x, y = space[across].index(point[across]), space[down].index(point[down])
        panel.plot(x, y, "X", color="white", markeredgecolor="black", markersize=10)
    panel.set_xticks(range(len(space[across])), [f"{v:g}" for v in space[across]], rotation=45, fontsize="x-small")
    panel.set_yticks(range(len(space[down])), [f"{v:g}" for v in space[down]], fontsize="x-small")
    panel.set_xlabel(plain(across))
    panel.set_ylabel(plain(down))
    panel.set_title(plain(state.cell.method.label), fontsize="small")
    panel.grid(visible=False)


def _place(row: Row) -> tuple[str, str]:
    return row.setting.sets_label, _data_label(row)


def _data_label(row: Row) -> str:
    return f"{row.setting.data_label}, {component_label(row.setting.backbone)}"
