"""Tables of docs/leaderboard.md and docs/methods.md are those of the files beside them, and of what studies found."""

from __future__ import annotations

import csv
import json
import re
import statistics
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.methods import RESULTS, methods
from tests.docs_script import docs_script
from wsl_toolkit.cli.study_progress import SilentStudy
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.driver import check_study, run_study
from wsl_toolkit.studies.executor import Inline
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.store import StudyFolder

ROOT = Path(__file__).parents[2]
STUDY: dict[str, Any] = {
    "trials": 2,
    "training": {"epochs": 2, "batch_size": 128, "validation": 0.1},
    "search": {"epochs": 1, "space": {"lr": [0.01, 1.0]}},
    "settings": [{"dataset": "digits", "generator": "mcl-skewed", "backbone": "linear"}],
    "methods": [
        {"estimator": "supervised", "label": "supervised (sees true labels)"},
        {"estimator": "cc", "label": "CC"},
        {"estimator": "average", "label": "average"},
    ],
}


def part(text: str, name: str) -> str:
    (found,) = re.findall(rf"<!-- begin: {name} -->\n(.*?)<!-- end: {name} -->", text, re.S)
    return str(found).strip()


def run(rule: str, name: str, home: Path) -> None:
    study, registry = from_dict({**STUDY, "name": name, "selection": {"rule": rule}}, "test"), load_plugins().registry
    folder = StudyFolder(home, name)
    folder.create()
    check_study(study, folder, registry, home)
    folder.write_study(study)
    run_study(study, folder, registry, Inline(), SilentStudy(), None, data_dir=home)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_has_the_classical_classifiers_numbers() -> None:
    generator = docs_script("generate_classical")
    page = generator.PAGE.read_text(encoding="utf-8")
    assert generator.page() == page, "run: python docs/generate_classical.py"
    assert len(read(generator.TRIALS)) == 3 * (3 * 10 + 2 * 3), (
        "ten splits of the real sets, three trials of MNIST twice"
    )
    assert "–" not in generator.table()


def test_the_page_has_the_cost_of_every_method_that_can_train() -> None:
    generator = docs_script("generate_leaderboard")
    page = generator.PAGE.read_text(encoding="utf-8")
    assert part(page, "cost") == generator.cost_table(), "run: python docs/generate_leaderboard.py costs"
    measured = {
        row["what"] for section in json.loads(RESULTS.read_text("utf-8"))["sections"] for row in section["rows"]
    }
    wanted = {f"{network}: {name}" for network in ("linear", "mlp") for name in methods() if name != "ppl"}
    assert wanted <= measured, "run: python -m benchmarks.methods"


def test_the_page_has_the_later_methods_numbers() -> None:
    generator = docs_script("generate_later")
    assert generator.page() == generator.PAGE.read_text(encoding="utf-8"), "run: python docs/generate_later.py"
    assert generator.methods()
    assert not {row["method"] for row in read(generator.BESIDE / "later-trials.csv")} - set(generator.methods())


def test_cells_that_were_run_again_take_the_place_of_those_before() -> None:
    def cell(method: str, *accuracies: float) -> list[dict[str, str]]:
        return [{"dataset": "lost", "generator": "", "method": method, "test/accuracy": str(a)} for a in accuracies]

    before = [*cell("CEL", 0.1, 0.2), *cell("SoLar", 0.3), *cell("gone", 0.4)]
    found = docs_script("generate_later").together(before, cell("CEL", 0.5), ["SoLar", "CEL"])
    assert found == [*cell("SoLar", 0.3), *cell("CEL", 0.5)]


def test_the_page_has_the_long_tails_numbers() -> None:
    generator = docs_script("generate_long_tails")
    page = generator.PAGE.read_text(encoding="utf-8")
    assert generator.page() == page, "run: python docs/generate_long_tails.py"
    for name in generator.STUDIES:
        rows = read(generator.BESIDE / f"{name}-trials.csv")
        study = tomllib.loads((generator.BESIDE / f"{name}.toml").read_text("utf-8"))
        assert len(rows) == study["trials"] * len(study["settings"]) * len(study["methods"])


def test_the_generator_writes_what_two_studies_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = docs_script("generate_leaderboard")
    rules = {"leaderboard": "covering-rate", "leaderboard-aa": "approximated-accuracy"}
    for name, rule in rules.items():
        run(rule, name, tmp_path)
    (tmp_path / "page.md").write_text(generator.PAGE.read_text("utf-8"), encoding="utf-8")
    (tmp_path / "beside").mkdir()
    monkeypatch.setattr(generator, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(generator, "BESIDE", tmp_path / "beside")
    monkeypatch.setattr(generator, "COLUMNS", ("digits",))
    monkeypatch.setattr(
        generator,
        "read_study",
        lambda name: from_dict({**STUDY, "name": name, "selection": {"rule": rules[name]}}, "t"),
    )
    generator.main(tmp_path)
    page = (tmp_path / "page.md").read_text("utf-8")
    trials = [read(tmp_path / "beside" / f"trials{ending}.csv") for ending in ("", "-aa")]
    accuracy: list[dict[str, float]] = []
    chosen: list[dict[str, str]] = []
    for rows in trials:
        labels = {row["method"] for row in rows}
        accuracy.append(
            {one: statistics.fmean(float(r["test/accuracy"]) for r in rows if r["method"] == one) for one in labels}
        )
        chosen.append({row["method"]: row["lr"] for row in rows})
    rivals = ("CC", "average")
    same = sum(chosen[0][label] == chosen[1][label] for label in chosen[0])
    differ = [label for label in rivals if chosen[0][label] != chosen[1][label]]
    better = sum(accuracy[0][label] > accuracy[1][label] for label in differ)
    said = part(page, "agreement").replace("\n", " ")
    assert f"same point in {same} of 3 cells" in said
    assert f"other {len(differ)} without `supervised`" in said
    assert f"predicts better in {better} and" in said
    for name, found in zip(rules, accuracy, strict=True):
        best = max(rivals, key=lambda label: found[label])
        assert f"* digits: {best} is first" in part(page, name)
        assert "| CC | " in part(page, name)
        assert part(page, f"{name} missing") == "Nothing."
