"""Writes the tables of docs/leaderboard.md, and the CSV files and diagrams beside it, from two studies' results.

Run as `python docs/generate_leaderboard.py [DIRECTORY]`: the `wsl-runs` of `wsl study run leaderboard` and
`wsl study run leaderboard-aa`, carried out whole or in part. The text around the tables stays as it is. The costs are
those of the last `python -m benchmarks.methods` or `make bench`; `python docs/generate_leaderboard.py costs` writes
them alone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from wsl_toolkit.plugins import load_plugins
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.driver import study_states
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.report import numbers
from wsl_toolkit.studies.report.rank_figure import critical_difference_diagram
from wsl_toolkit.studies.report.ranking import Ranking, ranking
from wsl_toolkit.studies.report.statistics import best_and_ties, estimate
from wsl_toolkit.studies.report.tables import by_seed, shown_trials
from wsl_toolkit.studies.store import StudyFolder
from wsl_toolkit.system.figure_style import save
from wsl_toolkit.system.files import write_atomically

HERE = Path(__file__).parent
PAGE = HERE / "leaderboard.md"
BESIDE = HERE / "leaderboard"
COSTS = HERE.parent / "benchmarks" / "methods.json"
COLUMNS = ("lost", "MSRCv2", "BirdSong", "MNIST, `mcl-skewed`", "MNIST, `flip-instance`")
STUDIES = {"leaderboard": "", "leaderboard-aa": "-aa"}
REFERENCE = "supervised"
"""How the label of the method begins that sees true labels and does not compete."""


def main(home: Path) -> None:
    """Write everything anew."""
    text = PAGE.read_text(encoding="utf-8")
    by_rule = []
    for name, ending in STUDIES.items():
        study = read_study(name)
        states = study_states(study, StudyFolder(home, name), load_plugins().registry)
        found = ranking(study, states)
        write_files(states, found, ending)
        parts = (accuracy_table(study, states, found), leaders(study, states), ranks(found))
        text = put(text, name, "\n\n".join(parts))
        text = put(text, f"{name} missing", missing(study, states))
        by_rule.append(states)
    text = put(text, "agreement", agreement(*by_rule))
    write_atomically(PAGE, put(text, "cost", cost_table()))


def costs() -> None:
    """Write the costs alone."""
    write_atomically(PAGE, put(PAGE.read_text(encoding="utf-8"), "cost", cost_table()))


def put(text: str, name: str, part: str) -> str:
    """Return the page with another text between the marks of a part."""
    marks = re.compile(rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.S)
    found, count = marks.subn(lambda mark: f"{mark[1]}\n{part}\n\n{mark[2]}", text)
    if count != 1:
        raise SystemExit(f"{PAGE}: there is no part {name!r}")
    return found


def write_files(states: Sequence[CellState], found: Ranking | None, ending: str) -> None:
    """Write the numbers behind the table, and the diagram of ranks."""
    write_atomically(BESIDE / f"trials{ending}.csv", numbers.trials_csv([s for s in states if s.finished]))
    write_atomically(BESIDE / f"search{ending}.csv", numbers.search_csv(states))
    diagram = critical_difference_diagram(found)
    if diagram is not None:
        save(diagram, BESIDE / f"critical-difference{ending}.png")


def accuracy_table(study: Study, states: Sequence[CellState], found: Ranking | None) -> str:
    """Return a row for each method and a column for each setting, the best and what cannot be told from it in bold."""
    width = len(study.methods)
    columns = [column(states[place : place + width]) for place in range(0, len(states), width)]
    rows = [f"| method | {' | '.join(COLUMNS)} | mean rank |", f"|---{'|---:' * (len(COLUMNS) + 1)}|"]
    for place, method in enumerate(study.methods):
        rank = found.mean.get(method.label) if found else None
        cells = [cells[place] for cells in columns]
        rows.append(f"| {method.label} | {' | '.join(cells)} | {'–' if rank is None else f'{rank:.1f}'} |")
    return "\n".join(rows)


def column(states: Sequence[CellState]) -> list[str]:
    """Return the accuracies of all methods in one setting."""
    best = best_of(states)
    cells = []
    for state in states:
        values = list(by_seed(state, "test/accuracy").values())
        if not values:
            cells.append("diverged" if state.done or state.error else "–")
            continue
        shown = estimate(values).show(1, 100) + shown_trials(state)
        cells.append(f"**{shown}**" if state.cell.method.label in best else shown)
    return cells


def best_of(states: Sequence[CellState]) -> set[str]:
    """Return the best method in one setting, and those that cannot be told from it; the supervised one is no rival."""
    values = {state.cell.method.label: by_seed(state, "test/accuracy") for state in states}
    return best_and_ties({label: own for label, own in values.items() if own and not label.startswith(REFERENCE)})


def leaders(study: Study, states: Sequence[CellState]) -> str:
    """Return a line for each setting: its best method, and how many cannot be told from it."""
    width = len(study.methods)
    lines = []
    for place, setting in zip(range(0, len(states), width), COLUMNS, strict=True):
        own = states[place : place + width]
        best = best_of(own)
        mean = {s.cell.method.label: mean_accuracy(s) for s in own if s.cell.method.label in best}
        order = sorted(mean, key=lambda label: -mean[label])
        if order:
            others = f"; not told from it: {', '.join(order[1:])}" if order[1:] else ""
            lines.append(f"* {setting}: {order[0]} is first{others}.")
    return "\n".join(lines) or "No setting has a result yet."


def mean_accuracy(state: CellState) -> float:
    """Return the mean test accuracy of a cell's trials."""
    return estimate(list(by_seed(state, "test/accuracy").values())).mean


def agreement(covering: Sequence[CellState], approximated: Sequence[CellState]) -> str:
    """Return in how many cells both rules choose the same point, and whose choice predicts better in the others."""
    pairs = [(one, other) for one, other in zip(covering, approximated, strict=True) if one.finished and other.finished]
    differ = [(one, other) for one, other in pairs if one.points != other.points]
    counted = [pair for pair in differ if not pair[0].cell.method.label.startswith(REFERENCE)]
    gains = [mean_accuracy(one) - mean_accuracy(other) for one, other in counted]
    one_better, other_better = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return (
        f"The two rules choose the same point in {len(pairs) - len(differ)} of {len(pairs)} cells. Of the other "
        f"{len(counted)} without `supervised`, covering rate's choice\npredicts better in {one_better} and "
        f"approximated accuracy's in {other_better}."
    )


def ranks(found: Ranking | None) -> str:
    """Return what Friedman's test and Nemenyi's difference say."""
    if found is None or found.p_value is None or found.critical_difference is None:
        return "Too few settings are complete for a test of ranks."
    return (
        f"Ranks over {found.settings} settings, for methods with a result in each: Friedman's test that all are "
        f"equally good gives p = {found.p_value:.2g};\nNemenyi's critical difference is "
        f"{found.critical_difference:.2f} ranks."
    )


def missing(study: Study, states: Sequence[CellState]) -> str:
    """Return the cells without all their trials, methods with the same gaps together."""
    gaps: dict[str, list[str]] = {}
    for place, state in enumerate(states):
        if not state.done:
            gaps.setdefault(state.cell.method.label, []).append(COLUMNS[place // len(study.methods)])
    together: dict[str, list[str]] = {}
    for method, settings in gaps.items():
        together.setdefault(", ".join(settings), []).append(method)
    return "\n".join(f"* {', '.join(methods)}: {settings}." for settings, methods in together.items()) or "Nothing."


def cost_table() -> str:
    """Return how costs were measured, and the time of an epoch relative to ppl's with each network, cheapest first."""
    found = json.loads(COSTS.read_text(encoding="utf-8"))
    costs: dict[str, dict[str, str]] = {"ppl": {"linear": "1.00", "mlp": "1.00"}}
    for section in found["sections"]:
        for row in section["rows"]:
            network, method = row["what"].split(": ")
            costs.setdefault(method, {})[network] = f"{row['median']:.2f}"
    rows = [f"| `{name}` | {cost['linear']} | {cost['mlp']} |" for name, cost in costs.items()]
    rows.sort(key=lambda row: float(row.split("|")[3]))
    rounds = len(found["sections"][0]["details"]["ppl"])
    said = f"Median of {rounds} rounds; load average of the {found['machine']['cores']} cores at the start "
    return "\n".join(
        [f"{said}{found['machine']['load_average']}.", "", "| estimator | linear | mlp |", "|---|---:|---:|", *rows]
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments == ["costs"]:
        costs()
    else:
        main(Path([*arguments, "wsl-runs"][0]))
