"""Writes the tables of the methods that came later on docs/leaderboard.md from CSV files beside it.

Run as `python docs/generate_later.py [DIRECTORY …]`. Directories are `wsl-runs` of the studies leaderboard and
leaderboard-aa, carried out for some methods and settings: cells that are finished there take the place of those in the
files. The text around the tables stays as it is.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from wsl_toolkit.plugins import load_plugins
from wsl_toolkit.studies.driver import study_states
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.report import numbers
from wsl_toolkit.studies.report.statistics import estimate
from wsl_toolkit.studies.store import StudyFolder
from wsl_toolkit.system.files import write_atomically

HERE = Path(__file__).parent
PAGE = HERE / "leaderboard.md"
BESIDE = HERE / "leaderboard"
STUDIES = {"leaderboard": "", "leaderboard-aa": "-aa"}
MNIST = "mnist(examples=3000)"
COLUMNS = {
    "lost": ("lost", ""),
    "MSRCv2": ("MSRCv2", ""),
    "BirdSong": ("BirdSong", ""),
    "MNIST, `mcl-skewed`": (MNIST, "mcl-skewed"),
    "MNIST, `flip-instance`": (MNIST, "flip-instance"),
}
CELL = ("dataset", "generator", "method")

Rows = list[dict[str, str]]


def main(homes: Sequence[Path]) -> None:
    """Write everything anew."""
    for name, ending in STUDIES.items():
        study = read_study(name)
        for home in homes:
            folder = StudyFolder(home, name)
            if folder.path.is_dir():
                states = [each for each in study_states(study, folder, load_plugins().registry) if each.finished]
                for kind, text in (("trials", numbers.trials_csv(states)), ("search", numbers.search_csv(states))):
                    path = BESIDE / f"later-{kind}{ending}.csv"
                    rows = together(read(path), list(csv.DictReader(io.StringIO(text))), methods())
                    write_atomically(path, numbers.csv_text(rows))
    write_atomically(PAGE, page())


def read(path: Path) -> Rows:
    """Return a file's rows."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def methods() -> list[str]:
    """Return the methods of the study that the first tables do not have, in its order."""
    first = {row["method"] for row in read(BESIDE / "trials.csv")}
    return [method.label for method in read_study("leaderboard").methods if method.label not in first]


def together(before: Rows, new: Rows, order: Sequence[str]) -> Rows:
    """Return all rows by setting and method; a cell that is in both is the new one's."""
    cells: dict[tuple[str, ...], Rows] = {}
    for rows in (before, new):
        fresh: dict[tuple[str, ...], Rows] = {}
        for row in rows:
            fresh.setdefault(tuple(row[name] for name in CELL), []).append(row)
        cells |= {cell: own for cell, own in fresh.items() if cell[2] in order}
    places = list(COLUMNS.values())
    known = sorted(cells, key=lambda cell: (places.index((cell[0], cell[1])), order.index(cell[2])))
    return [row for cell in known for row in cells[cell]]


def page() -> str:
    """Return the page with the tables that the CSV files give."""
    text = PAGE.read_text(encoding="utf-8")
    for ending in STUDIES.values():
        marks = re.compile(rf"(<!-- begin: later{ending} -->\n).*?(<!-- end: later{ending} -->)", re.S)
        text, count = marks.subn(lambda mark, ending=ending: f"{mark[1]}\n{table(ending)}\n\n{mark[2]}", text)
        if count != 1:
            raise SystemExit(f"{PAGE}: there is no part 'later{ending}'")
    return text


def table(ending: str) -> str:
    """Return a row for each method and a column for each setting; a dash is a cell that was not run whole."""
    found = read(BESIDE / f"later-trials{ending}.csv")
    lines = [f"| method | {' | '.join(COLUMNS)} |", f"|---{'|---:' * len(COLUMNS)}|"]
    for method in methods():
        shown = []
        for dataset, generator in COLUMNS.values():
            cell = (dataset, generator, method)
            values = [float(row["test/accuracy"]) for row in found if tuple(row[name] for name in CELL) == cell]
            shown.append(estimate(values).show(1, 100) if values else "–")
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main([Path(home) for home in sys.argv[1:]])
