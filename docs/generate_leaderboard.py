"""Writes the tables of docs/leaderboard.md, and the CSV files and diagrams beside it, from two studies' results.

Run as `python docs/generate_leaderboard.py [DIRECTORY]`: the `wsl-runs` of `wsl study run leaderboard` and
`wsl study run leaderboard-aa`, carried out whole or in part. The text around the tables stays as it is. The costs are
those of the last whole run of `make bench`.

`python docs/generate_leaderboard.py later [DIRECTORY]` leaves the tables alone, and writes those of the methods that
they do not have yet, as far as they were run.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

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
RESULTS = HERE.parent / "benchmarks" / "results.json"
COLUMNS = ("lost", "MSRCv2", "BirdSong", "MNIST, `mcl-skewed`", "MNIST, `flip-instance`")
STUDIES = {"leaderboard": "", "leaderboard-aa": "-aa"}


def main(home: Path) -> None:
    """Write everything anew."""
    text = PAGE.read_text(encoding="utf-8")
    for name, ending in STUDIES.items():
        study = read_study(name)
        states = study_states(study, StudyFolder(home, name), load_plugins().registry)
        found = ranking(study, states)
        write_files(states, found, ending)
        text = put(text, name, f"{accuracy_table(study, states, found)}\n\n{ranks(found)}")
        text = put(text, f"{name} missing", missing(study, states))
    write_atomically(PAGE, put(text, "cost", cost_table()))


def later(home: Path) -> None:
    """Write the tables of methods that came after the leaderboard was run."""
    text = PAGE.read_text(encoding="utf-8")
    for name, ending in STUDIES.items():
        with (BESIDE / f"trials{ending}.csv").open(encoding="utf-8", newline="") as file:
            known = {row["method"] for row in csv.DictReader(file)}
        study = read_study(name)
        new = attrs.evolve(study, methods=tuple(m for m in study.methods if m.label not in known))
        states = study_states(new, StudyFolder(home, name), load_plugins().registry)
        done = [state for state in states if state.done]
        write_atomically(BESIDE / f"later-trials{ending}.csv", numbers.trials_csv(done))
        write_atomically(BESIDE / f"later-search{ending}.csv", numbers.search_csv(done))
        text = put(text, f"later {name}", plain_table(new, states))
    write_atomically(PAGE, text)


def plain_table(study: Study, states: Sequence[CellState]) -> str:
    """Return a row for each method that has a whole cell, and a column for each setting."""
    width = len(study.methods)
    rows = [f"| method | {' | '.join(COLUMNS)} |", f"|---{'|---:' * len(COLUMNS)}|"]
    for place, method in enumerate(study.methods):
        own = [states[start + place] for start in range(0, len(states), width)]
        shown = [estimate(list(by_seed(s, "test/accuracy").values())).show(1, 100) if s.done else "–" for s in own]
        if any(state.done for state in own):
            rows.append(f"| {method.label} | {' | '.join(shown)} |")
    return "\n".join(rows)


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
    values = {state.cell.method.label: by_seed(state, "test/accuracy") for state in states}
    compete = {label: seeds for label, seeds in values.items() if seeds and not label.startswith("supervised")}
    best = best_and_ties(compete)
    cells = []
    for state in states:
        label = state.cell.method.label
        if not values[label]:
            cells.append("diverged" if state.done or state.error else "–")
            continue
        shown = estimate(list(values[label].values())).show(1, 100) + shown_trials(state)
        cells.append(f"**{shown}**" if label in best else shown)
    return cells


def ranks(found: Ranking | None) -> str:
    """Return what Friedman's test and Nemenyi's difference say."""
    if found is None:
        return "Too few settings are complete for ranks."
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
    """Return the time of an epoch relative to ppl's, with each network, the cheapest first."""
    costs: dict[str, dict[str, str]] = {"ppl": {"linear": "1.00", "mlp": "1.00"}}
    for section in json.loads(RESULTS.read_text(encoding="utf-8"))["sections"]:
        if section["title"].startswith("Cost of methods"):
            for row in section["rows"]:
                network, method = row["what"].split(": ")
                costs.setdefault(method, {})[network] = f"{row['median']:.2f}"
    rows = [f"| `{name}` | {cost['linear']} | {cost['mlp']} |" for name, cost in costs.items()]
    rows.sort(key=lambda row: float(row.split("|")[3]))
    return "\n".join(["| estimator | linear | mlp |", "|---|---:|---:|", *rows])


if __name__ == "__main__":
    arguments = sys.argv[1:]
    write = later if arguments[:1] == ["later"] else main
    write(Path([*arguments[write is later :], "wsl-runs"][0]))
