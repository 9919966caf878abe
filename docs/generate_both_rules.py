"""Writes the tables of the studies that choose points by two rules on docs/reproduction.md from CSV files beside it.

Run as `python docs/generate_both_rules.py [DIRECTORY …]`. Directories are `wsl-runs` of these studies, carried out
whole or in part: cells that are finished there take the place of those in the CSV files first. The text around the
tables stays as it is.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.driver import study_states
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.report import numbers
from wsl_toolkit.studies.report.paper import paper_risks
from wsl_toolkit.studies.report.statistics import Estimate, estimate
from wsl_toolkit.studies.store import StudyFolder
from wsl_toolkit.system.files import write_atomically

HERE = Path(__file__).parent
PAGE = HERE / "reproduction.md"
BESIDE = HERE / "reproduction"
STUDIES = ("table-3",)
"""Studies by the first rule; each has a file of its name, and so has the same study by the second."""
RULES = {"": "best rate", "-one-standard-error": "within one s.e."}
"""Endings of the studies' names, and the words for their rules of selection."""
FILES = {"table-3": "table-3-at-250"}
"""How CSV files begin, where not by the study's name: `table-3-trials.csv` is of the search at 50 epochs."""
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
METHODS = ("MCL", "PPL", "CC", "LW")
CLOSE = 0.5
"""Points of accuracy: the claim is that PPL is the best, or at most so far behind."""

Setting = tuple[str, float]
"""A dataset, and α."""
Trials = Mapping[tuple[Setting, str], Sequence[Mapping[str, str]]]
"""The rows of each setting and method."""
ByRule = Mapping[str, Trials]
"""A study's trials by the endings of its name."""


def main(homes: Sequence[Path]) -> None:
    """Write everything anew."""
    for home in homes:
        for study in STUDIES:
            for ending in RULES:
                write_files(home, study, ending)
    write_atomically(PAGE, page())


def write_files(home: Path, study: str, ending: str) -> None:
    """Write the trials and curves of finished cells and, once for both rules, the search."""
    folder = StudyFolder(home, study + ending)
    if not folder.path.is_dir():
        return
    described = read_study(str(BESIDE / f"{study}{ending}.toml"))
    states = [state for state in study_states(described, folder, load_plugins().registry) if state.done]
    tables = {"trials": numbers.trials_csv(states), "curves": numbers.curves_csv(states)}
    if not ending:
        tables["search"] = numbers.search_csv(states)
    for what, text in tables.items():
        path = file_of(study, ending, what)
        write_atomically(path, together(path, text))


def file_of(study: str, ending: str, what: str) -> Path:
    """Return a CSV file of a study by a rule."""
    return BESIDE / f"{FILES.get(study, study)}{ending}-{what}.csv"


def together(path: Path, text: str) -> str:
    """Return the CSV text of a file's rows and new ones, in the study's order; of a cell in both the new ones."""
    new = list(csv.DictReader(io.StringIO(text)))
    old = rows_of(path) if path.exists() else []
    fresh = {cell(row) for row in new}
    kept = [row for row in old if cell(row) not in fresh]
    return numbers.csv_text(sorted(kept + new, key=cell))


def cell(row: Mapping[str, str]) -> tuple[int, float, int]:
    """Return the place of a row's cell: by dataset, falling α, and method."""
    return list(NAMES).index(row["dataset"]), -alpha(row), METHODS.index(row["method"])


def alpha(row: Mapping[str, str]) -> float:
    """Return the α of a row's sets."""
    found = re.fullmatch(r"mcl-skewed\(alpha=(.*)\)", row["generator"])
    assert found is not None
    return float(found[1])


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return a file's rows."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page() -> str:
    """Return the page with the tables that the CSV files give."""
    text = PAGE.read_text(encoding="utf-8")
    parts: dict[str, str] = {}
    for study in STUDIES:
        found = {ending: trials_of(study, ending) for ending in RULES}
        parts[f"{study}-accuracy"] = accuracy_table(found)
        parts[f"{study}-verdict"] = verdict(found)
        parts[f"{study}-chosen"] = chosen_table(found)
        if study == "table-3":
            parts[f"{study}-risk"] = risk_table(found[""])
    for name, part in parts.items():
        marks = re.compile(rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.S)
        text, count = marks.subn(lambda mark, part=part: f"{mark[1]}\n{part}\n\n{mark[2]}", text)
        if count != 1:
            raise SystemExit(f"{PAGE}: there is no part '{name}'")
    return text


def trials_of(study: str, ending: str) -> Trials:
    """Return the rows of a study's trials by a rule."""
    found: dict[tuple[Setting, str], list[dict[str, str]]] = {}
    for row in rows_of(file_of(study, ending, "trials")):
        found.setdefault(((row["dataset"], alpha(row)), row["method"]), []).append(row)
    return found


def settings_of(trials: Trials) -> list[Setting]:
    """Return the settings on which all methods were run; what there is of others, the CSV files alone have."""
    known = dict.fromkeys(setting for setting, _ in trials)
    return [setting for setting in known if len(measured(trials, setting)) == len(METHODS)]


def measured(trials: Trials, setting: Setting, metric: str = "test/accuracy") -> dict[str, Estimate]:
    """Return the mean and standard error of each method that was run."""
    return {
        method: estimate([float(row[metric]) for row in rows])
        for method in METHODS
        if (rows := trials.get((setting, method)))
    }


def behind(trials: Trials, setting: Setting) -> float | None:
    """Return by how many points PPL is behind the best method; None where another one is yet to be run."""
    found = measured(trials, setting)
    return None if len(found) < len(METHODS) else 100 * (max(each.mean for each in found.values()) - found["PPL"].mean)


def accuracy_table(found: ByRule) -> str:
    """Return accuracies by both rules, the best of a row in bold, and how far PPL is behind it."""
    lines = [
        f"| dataset | sets | selection | {' | '.join(METHODS)} | PPL behind |",
        f"|---|---|---|{'---:|' * (len(METHODS) + 1)}",
    ]
    for setting in settings_of(found[""]):
        for ending, rule in RULES.items():
            own = measured(found[ending], setting)
            best = max((each.mean for each in own.values()), default=0.0)
            cells = [
                _bold(own[method].show(2, 100), own[method].mean == best) if method in own else "–"
                for method in METHODS
            ]
            gap = behind(found[ending], setting)
            lines.append(
                f"| {_names(setting)} | {rule} | {' | '.join(cells)} | {'–' if gap is None else f'{gap:.2f}'} |"
            )
    return "\n".join(lines)


def risk_table(trials: Trials) -> str:
    """Return empirical risks beside the paper's, the smallest standard error of a row in bold."""
    heads = [head for method in METHODS for head in (method, f"{method} (paper)")]
    lines = [f"| dataset | sets | {' | '.join(heads)} |", f"|---|---|{'---:|' * len(heads)}"]
    theirs = paper_risks()
    for setting in settings_of(trials):
        own = measured(trials, setting, "train/risk")
        least = min((each.stderr for each in own.values() if each.stderr is not None), default=None)
        cells = []
        for method in METHODS:
            cells.append(_bold(own[method].show(4), own[method].stderr == least))
            paper = theirs[(setting[0], "linear", setting[1], method)]
            cells.append(_bold(str(paper), paper.bold))
        lines.append(f"| {_names(setting)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def chosen_table(found: ByRule) -> str:
    """Return the learning rates and weight decays that were chosen by both rules, and LW's leverage."""
    lines = [f"| dataset | sets | selection | {' | '.join(METHODS)} |", f"|---|---|---|{'---|' * len(METHODS)}"]
    for setting in settings_of(found[""]):
        for ending, rule in RULES.items():
            cells = [_point(rows[0]) if (rows := found[ending].get((setting, method))) else "–" for method in METHODS]
            lines.append(f"| {_names(setting)} | {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(found: ByRule) -> str:
    """Return in a sentence for each rule in how many rows PPL is the best or close to it."""
    told = []
    for ending, rule in RULES.items():
        own = found[ending]
        gaps = [gap for setting in settings_of(own) if (gap := behind(own, setting)) is not None]
        close = sum(gap <= CLOSE for gap in gaps)
        told.append(
            f"* {rule}: PPL is the best, or at most {CLOSE} points behind, in {close} of the {len(gaps)} complete rows."
        )
    return "\n".join(told)


def _names(setting: Setting) -> str:
    return f"{NAMES[setting[0]]} | α = {setting[1]:g}"


def _point(row: Mapping[str, str]) -> str:
    leverage = json.loads(row["estimator_parameters"] or "{}").get("leverage")
    return f"{float(row['lr']):g}, {float(row['weight_decay']):g}" + ("" if leverage is None else f", {leverage:g}")


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


if __name__ == "__main__":
    main([Path(home) for home in sys.argv[1:]])
