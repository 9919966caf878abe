"""Writes the table of the classical classifiers on docs/leaderboard.md from a CSV file beside it.

Run as `python docs/generate_classical.py [DIRECTORY]`. With a directory, where the data is kept, the classifiers are
fitted on the leaderboard's splits and sets and the CSV file is written anew first. The text around the table stays as
it is.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from wsl_methods.neighbours import IPAL, PLKNN
from wsl_methods.output_codes import PLECOC
from wsl_methods.table_classifiers import TableClassifier
from wsl_toolkit.data.inputs import as_inputs
from wsl_toolkit.data.loading import load_data
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.plugins import load_plugins
from wsl_toolkit.studies.description import Cell, Study, StudySetting
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.report.numbers import csv_text
from wsl_toolkit.studies.report.statistics import estimate
from wsl_toolkit.system.files import write_atomically

HERE = Path(__file__).parent
PAGE = HERE / "leaderboard.md"
TRIALS = HERE / "leaderboard" / "classical-trials.csv"
SETTINGS = {
    "lost": ("lost", ""),
    "MSRCv2": ("MSRCv2", ""),
    "BirdSong": ("BirdSong", ""),
    "MNIST, `mcl-skewed`": ("mnist", "mcl-skewed"),
    "MNIST, `flip-instance`": ("mnist", "flip-instance"),
}
"""The page's names of the study's settings: the dataset or the label, and the generator where sets are drawn."""
CLASSIFIERS: dict[str, TableClassifier] = {"PL-kNN": PLKNN(), "IPAL": IPAL(), "PL-ECOC": PLECOC()}
MARKS = re.compile(r"(<!-- begin: classical -->\n).*?(<!-- end: classical -->)", re.S)


def main(data_dir: Path | None) -> None:
    """Write everything anew."""
    if data_dir is not None:
        rows = [row for name in SETTINGS for row in trials(read_study("leaderboard"), name, data_dir)]
        write_atomically(TRIALS, csv_text(rows))
    write_atomically(PAGE, page())


def trials(study: Study, name: str, data_dir: Path) -> Iterator[dict[str, object]]:
    """Yield the accuracy of each classifier on each of the splits and sets that the study's methods see."""
    registry = load_plugins().registry
    setting = next(each for each in study.settings if known_as(each) == SETTINGS[name])
    data = load_data(registry.create("dataset", *setting.dataset), data_dir)
    generator = registry.create("generator", *setting.generator) if setting.generator else None
    for seed in Cell(study=study, setting=setting, method=study.methods[0]).seeds:
        parts = {part: study.training[part] for part in ("validation", "test")}
        problem = make_problem(data, generator, seed=seed, **parts)
        for label, classifier in CLASSIFIERS.items():
            found = {"setting": name, "method": label, "seed": seed, "test/accuracy": accuracy(classifier, problem)}
            print(*found.values(), flush=True)
            yield found


def known_as(setting: StudySetting) -> tuple[str, str]:
    """Return a setting's label, or its dataset if it has none, and the name of its generator, if any."""
    return setting.name or setting.dataset[0], setting.generator[0] if setting.generator else ""


def accuracy(classifier: TableClassifier, problem: Problem) -> float:
    """Fit to the training part's sets, and return how often the test part's true label is predicted."""
    train, test = (
        as_inputs(part).gather(torch.arange(len(part))).flatten(1) for part in (problem.train_x, problem.test_x)
    )
    classifier.fit(train.numpy(), problem.train_candidates.mask().numpy())
    assert problem.clean.test is not None
    return float(np.mean(classifier.predict(test.numpy()) == problem.clean.test.numpy()))


def page() -> str:
    """Return the page with the table that the CSV file gives."""
    text, count = MARKS.subn(lambda mark: f"{mark[1]}\n{table()}\n\n{mark[2]}", PAGE.read_text(encoding="utf-8"))
    if count != 1:
        raise SystemExit(f"{PAGE}: there is no part 'classical'")
    return text


def table() -> str:
    """Return a row for each classifier and a column for each setting."""
    with TRIALS.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    rows = [f"| method | {' | '.join(SETTINGS)} |", f"|---{'|---:' * len(SETTINGS)}|"]
    for method in CLASSIFIERS:
        cells = []
        for name in SETTINGS:
            own = [float(row["test/accuracy"]) for row in found if (row["setting"], row["method"]) == (name, method)]
            cells.append(estimate(own).show(1, 100) if own else "–")
        rows.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
