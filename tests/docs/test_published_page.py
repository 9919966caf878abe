"""The tables of published numbers on docs/reproduction.md are those of the CSV files beside it."""

from __future__ import annotations

import csv
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs_script import docs_script
from wsl_toolkit.studies.report.against import read_published

ROOT = Path(__file__).parents[2]
BESIDE = ROOT / "docs" / "reproduction"


def plain(name: str) -> str:
    return name.lower().replace("-", "")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return docs_script("generate_published")


def test_the_page_has_the_numbers_of_its_files(generator: ModuleType) -> None:
    assert generator.page() == generator.PAGE.read_text(encoding="utf-8"), "run: python docs/generate_published.py"


@pytest.mark.parametrize(
    ("name", "theirs", "epochs"),
    [
        ("published-conformal", "published-conformal.csv", "200"),
        ("published-valen-short", "published-valen.csv", "20"),
    ],
)
def test_means_differences_and_verdicts_follow_from_the_trials(name: str, theirs: str, epochs: str) -> None:
    accuracies: dict[tuple[str, str], list[float]] = {}
    with (BESIDE / f"{name}-trials.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            assert (row["status"], row["epochs"]) == ("finished", epochs)
            accuracies.setdefault((plain(row["dataset"]), row["method"]), []).append(100 * float(row["test/accuracy"]))
    published = {(plain(each.dataset), each.method): each.accuracy for each in read_published(BESIDE / theirs)}
    seen = set()
    with (BESIDE / f"{name}-against.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = (plain(row["dataset"]), row["method"])
            assert float(row["published"]) == published[key]
            if row["verdict"] == "not run":
                assert key not in accuracies
                continue
            seen.add(key)
            ours = sum(accuracies[key]) / len(accuracies[key])
            assert int(row["trials"]) == len(accuracies[key])
            assert float(row["ours"]) == pytest.approx(ours)
            assert float(row["difference"]) == pytest.approx(ours - published[key])
            assert row["verdict"].startswith("within 3") == (abs(ours - published[key]) <= 3)
    assert seen == accuracies.keys()
