"""The tables of Table 3 that was searched at its own length are those of the CSV files beside the page."""

from __future__ import annotations

import csv
import importlib.util
import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_table_3", ROOT / "docs" / "generate_table_3.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_has_the_numbers_of_its_files(generator: ModuleType) -> None:
    assert generator.page() == generator.PAGE.read_text(encoding="utf-8"), "run: python docs/generate_table_3.py"


def test_all_trials_are_whole_and_both_rules_see_the_same_sets(generator: ModuleType) -> None:
    sets: dict[tuple[str, str, str], str] = {}
    for study in generator.STUDIES:
        rows = read(generator.file_of(study, "trials"))
        assert rows
        for row in rows:
            assert (row["status"], row["epochs"]) == ("finished", "250")
            key = (row["dataset"], row["generator"], row["seed"])
            assert sets.setdefault(key, row["candidates"]) == row["candidates"], "the methods' sets are the same, too"
        for trials in generator.trials_of(study).values():
            assert [row["seed"] for row in trials] == list("01234")


def test_the_first_rule_chose_the_best_rate_and_of_equals_the_strongest_decay(generator: ModuleType) -> None:
    searches: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in read(generator.file_of("table-3", "search")):
        searches.setdefault((row["dataset"], row["generator"], row["method"]), []).append(row)
    trials = {(r["dataset"], r["generator"], r["method"]): r for r in read(generator.file_of("table-3", "trials"))}
    assert trials.keys() == searches.keys()
    for key, rows in searches.items():
        assert len(rows) == (108 if key[2] == "LW" else 36)
        (chosen,) = [row for row in rows if row["chosen"] == "yes"]
        best = max(float(row["score"]) for row in rows if row["score"])
        assert float(chosen["score"]) == best
        equals = [float(row["weight_decay"]) for row in rows if row["score"] and float(row["score"]) == best]
        assert float(chosen["weight_decay"]) == max(equals)
        trial = trials[key]
        assert (float(trial["lr"]), float(trial["weight_decay"])) == (
            float(chosen["lr"]),
            float(chosen["weight_decay"]),
        )
        if key[2] == "LW":
            assert json.loads(trial["estimator_parameters"])["leverage"] == float(chosen["estimator.leverage"])


def test_gaps_follow_from_the_means(generator: ModuleType) -> None:
    trials = generator.trials_of("table-3")
    for setting in generator.settings_of(trials):
        gap = generator.behind(trials, setting)
        means = [
            statistics.mean(float(row["test/accuracy"]) for row in trials[setting, method])
            for method in generator.METHODS
            if (setting, method) in trials
        ]
        if len(means) < 4:
            assert gap is None
        else:
            assert gap == pytest.approx(100 * (max(means) - means[1]))
            assert gap >= 0
