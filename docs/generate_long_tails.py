"""Writes the tables of long tails on docs/methods.md from CSV files beside it.

Run as `python docs/generate_long_tails.py [DIRECTORY …]`. Directories are `wsl-runs` of the studies named below: CSV
files of those that are found there, carried out whole, are written anew first. The text around the tables stays as it
is.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wsl_toolkit.plugins import load_plugins
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.driver import study_states
from wsl_toolkit.studies.jobs import FINISHED
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.report.numbers import csv_text
from wsl_toolkit.studies.report.statistics import estimate
from wsl_toolkit.studies.store import StudyFolder
from wsl_toolkit.system.files import write_atomically

HERE = Path(__file__).parent
PAGE = HERE / "methods.md"
BESIDE = HERE / "reproduction"
STUDIES = ("long-tails-methods", "long-tails-mnist-methods")
SHOTS = ("many", "medium", "few")
METRICS = ("test/accuracy", "test/balanced_accuracy", *(f"test/{shot}_shot_accuracy" for shot in SHOTS))


def main(homes: Sequence[Path]) -> None:
    """Write everything anew."""
    for name in STUDIES:
        for home in homes:
            folder = StudyFolder(home, name)
            if folder.path.is_dir():
                states = study_states(read_study(str(BESIDE / f"{name}.toml")), folder, load_plugins().registry)
                write_atomically(BESIDE / f"{name}-trials.csv", csv_text(rows_of(states)))
    write_atomically(PAGE, page())


def rows_of(states: Sequence[CellState]) -> list[dict[str, Any]]:
    """Return a row for each trial, without numbers where it diverged; a study that is not finished is an error."""
    rows = []
    for state in states:
        if not state.done:
            raise SystemExit(f"{state.cell.label} is not finished")
        name, values = state.cell.setting.dataset
        for result in state.results:
            assert result is not None
            about = {"dataset": name, "imbalance": f"{values.get('imbalance', 1):g}"}
            about |= {"estimator": state.cell.method.estimator[0], "seed": str(result.job.seed)}
            ended_well = result.status == FINISHED
            found = {key: round(result.final[key], 6) for key in METRICS if ended_well and key in result.final}
            rows.append({**about, "mean_set_size": round(result.mean_size, 3), **found})
    return rows


def page() -> str:
    """Return the page with the tables that the CSV files give."""
    text = PAGE.read_text(encoding="utf-8")
    for name in STUDIES:
        marks = re.compile(rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.S)
        text, count = marks.subn(lambda mark, name=name: f"{mark[1]}\n{table(name)}\n\n{mark[2]}", text)
        if count != 1:
            raise SystemExit(f"{PAGE}: there is no part {name!r}")
    return text


def table(name: str) -> str:
    """Return a row for each ratio and method."""
    with (BESIDE / f"{name}-trials.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    rows = [f"| ratio | method | accuracy | {' | '.join(SHOTS)} |", f"|---:|---{'|---:' * (len(SHOTS) + 1)}|"]
    columns = ("test/accuracy", *(f"test/{shot}_shot_accuracy" for shot in SHOTS))
    for ratio, method in dict.fromkeys((row["imbalance"], row["estimator"]) for row in found):
        own = [row for row in found if (row["imbalance"], row["estimator"]) == (ratio, method)]
        cells = [[float(row[key]) for row in own if row.get(key)] for key in columns]
        shown = [estimate(values).show(1, 100) if values else "–" for values in cells]
        if not cells[0]:
            shown[0] = "diverged"
        rows.append(f"| {ratio} | `{method}` | {' | '.join(shown)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main([Path(home) for home in sys.argv[1:]])
