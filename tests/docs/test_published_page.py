"""The tables of published numbers on docs/reproduction.md are those of the CSV files beside it."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from wsl_toolkit.studies.report.against import read_published

ROOT = Path(__file__).parents[2]
BESIDE = ROOT / "docs" / "reproduction"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_published", ROOT / "docs" / "generate_published.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_numbers_of_its_files(generator: ModuleType) -> None:
    assert generator.page() == generator.PAGE.read_text(encoding="utf-8"), "run: python docs/generate_published.py"


def test_means_differences_and_verdicts_follow_from_the_trials() -> None:
    accuracies: dict[tuple[str, str], list[float]] = {}
    with (BESIDE / "published-conformal-trials.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            assert (row["status"], row["epochs"]) == ("finished", "200")
            accuracies.setdefault((row["dataset"], row["method"]), []).append(100 * float(row["test/accuracy"]))
    published = {(each.dataset, each.method): each for each in read_published(BESIDE / "published-conformal.csv")}
    seen = set()
    with (BESIDE / "published-conformal-against.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = (row["dataset"], row["method"])
            theirs = published[key].accuracy
            assert float(row["published"]) == theirs
            if row["verdict"] == "not run":
                assert key not in accuracies
                continue
            seen.add(key)
            ours = sum(accuracies[key]) / len(accuracies[key])
            assert int(row["trials"]) == len(accuracies[key])
            assert float(row["ours"]) == pytest.approx(ours)
            assert float(row["difference"]) == pytest.approx(ours - theirs)
            assert row["verdict"].startswith("within 3") == (abs(ours - theirs) <= 3)
    assert seen == accuracies.keys()
