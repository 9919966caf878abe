"""The tables of the studies that choose by two rules are those of the CSV files beside the page."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs_script import docs_script
from wsl_toolkit.studies.reading import read_study

ROOT = Path(__file__).parents[2]
STUDIES = ("table-3",)
POINT = ("lr", "weight_decay")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return docs_script("generate_both_rules")


def cell_of(row: dict[str, str]) -> tuple[str, ...]:
    return row["dataset"], row["generator"], row["method"]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_has_the_numbers_of_its_files(generator: ModuleType) -> None:
    assert generator.page() == generator.PAGE.read_text(encoding="utf-8"), "run: python docs/generate_both_rules.py"


@pytest.mark.parametrize("study", STUDIES)
def test_all_trials_are_whole_and_both_rules_see_the_same_sets(generator: ModuleType, study: str) -> None:
    epochs = str(read_study(str(generator.BESIDE / f"{study}.toml")).search.epochs)
    sets: dict[tuple[str, str, str], str] = {}
    for ending in generator.RULES:
        rows = read(generator.file_of(study, ending, "trials"))
        assert rows
        for row in rows:
            assert (row["status"], row["epochs"]) == ("finished", epochs), "a trial is as long as the search"
            key = (row["dataset"], row["generator"], row["seed"])
            assert sets.setdefault(key, row["candidates"]) == row["candidates"], "the methods' sets are the same, too"
        for trials in generator.trials_of(study, ending).values():
            assert [row["seed"] for row in trials] == list("01234")


@pytest.mark.parametrize("study", STUDIES)
def test_rules_choose_by_the_covering_rate_and_then_by_the_decay(generator: ModuleType, study: str) -> None:
    searches: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in read(generator.file_of(study, "", "search")):
        searches.setdefault(cell_of(row), []).append(row)
    best_rate, within = (
        {cell_of(row): row for row in read(generator.file_of(study, ending, "trials"))} for ending in generator.RULES
    )
    assert best_rate.keys() == searches.keys()
    for key, rows in searches.items():
        assert len(rows) == (108 if key[2] == "LW" else 36)
        (chosen,) = [row for row in rows if row["chosen"] == "yes"]
        best = max(float(row["score"]) for row in rows if row["score"])
        assert float(chosen["score"]) == best
        equals = [float(row["weight_decay"]) for row in rows if row["score"] and float(row["score"]) == best]
        assert float(chosen["weight_decay"]) == max(equals)
        trial = best_rate[key]
        assert [float(trial[name]) for name in POINT] == [float(chosen[name]) for name in POINT]
        if key[2] == "LW":
            assert json.loads(trial["estimator_parameters"])["leverage"] == float(chosen["estimator.leverage"])
        if key in within:
            assert float(within[key]["weight_decay"]) >= float(trial["weight_decay"])


@pytest.mark.parametrize("study", STUDIES)
def test_gaps_follow_from_the_means(generator: ModuleType, study: str) -> None:
    trials = generator.trials_of(study, "")
    assert generator.settings_of(trials)
    for setting in generator.settings_of(trials):
        means = [
            statistics.mean(float(row["test/accuracy"]) for row in trials[setting, method])
            for method in generator.METHODS
        ]
        assert generator.behind(trials, setting) == pytest.approx(100 * (max(means) - means[1]))


def test_cells_that_were_run_again_take_the_place_of_those_before(generator: ModuleType, tmp_path: Path) -> None:
    def rows(*cells: tuple[str, float, str, int]) -> str:
        return "dataset,generator,method,seed\n" + "".join(
            f"{d},mcl-skewed(alpha={a}),{m},{s}\n" for d, a, m, s in cells
        )

    before = tmp_path / "before.csv"
    before.write_text(rows(("fashion-mnist", 0.9, "MCL", 0), ("mnist", 0.7, "CC", 0), ("mnist", 0.7, "CC", 1)))
    found = generator.together(before, rows(("mnist", 0.7, "CC", 5), ("mnist", 0.7, "PPL", 0), ("mnist", 0.9, "LW", 0)))
    assert found == rows(
        ("mnist", 0.9, "LW", 0), ("mnist", 0.7, "PPL", 0), ("mnist", 0.7, "CC", 5), ("fashion-mnist", 0.9, "MCL", 0)
    )
    assert generator.together(tmp_path / "none.csv", found) == found
