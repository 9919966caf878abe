"""The page on accuracies shows what was measured, and its verdicts follow from the numbers."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import set_laws, tables

FOUND = json.loads(tables.RESULTS.read_text(encoding="utf-8"))


def test_the_page_shows_what_was_measured() -> None:
    shown = tables.PAGE.read_text(encoding="utf-8").partition(tables.BEGIN)[2].partition(tables.END)[0].strip()
    assert shown == tables.text(FOUND), "run `python -m benchmarks.tables --write`"
    assert list(FOUND["tables"]) == list(tables.TABLES)


def test_the_page_shows_what_laws_of_the_sets_brought() -> None:
    found = json.loads(set_laws.RESULTS.read_text(encoding="utf-8"))["tables"]
    shown = set_laws.PAGE.read_text(encoding="utf-8").partition(set_laws.BEGIN)[2].partition(set_laws.END)[0].strip()
    assert shown == set_laws.text(found), "run `python -m benchmarks.set_laws --write`"
    assert list(found) == list(set_laws.WAYS)


def test_made_sets_hold_the_true_class_and_are_those_that_were_measured() -> None:
    found = json.loads(set_laws.RESULTS.read_text(encoding="utf-8"))
    for way in set_laws.WAYS:
        data = set_laws.made(way, found["rows"])
        size = found["tables"][way]["mean size"]
        assert data.candidates.mean_size == pytest.approx(size, rel=0.02), (
            "one way asks a forest, which versions grow otherwise"
        )
        assert bool(data.candidates.mask().gather(1, data.known_y.unsqueeze(1)).all())
        assert not bool(data.candidates.mask().all(1).any())


def test_made_and_bundled_tables_are_those_that_were_measured() -> None:
    for name in ("iris", "wine", "digits", "digits (large sets)", "patients", "shells", "products", "clusters"):
        data, known = tables.TABLES[name](Path()), FOUND["tables"][name]
        assert (len(data.x), data.num_classes) == (known["rows"], known["classes"])
        assert data.candidates.mean_size == known["mean size"]
        assert bool(data.candidates.mask().gather(1, data.y.unsqueeze(1)).all()), "no set misses the truth"
        assert not bool(data.candidates.mask().all(1).any())


def test_guessed_labels_are_candidates_and_random_ones_are_all_as_likely() -> None:
    mask = torch.tensor([[False, True, True, True]] * 3000)
    found = tables.guesses(mask, torch.full((3000,), 2), seed=0)
    assert found["true labels"].unique().tolist() == [2]
    assert found["first candidate"].unique().tolist() == [1]
    counts = torch.bincount(found["random candidate"], minlength=4)
    assert counts[0] == 0
    assert bool(((counts[1:] - 1000).abs() < 120).all())


def test_verdicts_name_the_tables_that_miss_a_target() -> None:
    worse = copy.deepcopy(FOUND)
    for split in worse["tables"]["iris"]["splits"]:
        split["wsl fit"] = 0.1
    first, second = tables.verdicts(worse)
    assert "iris (" in first
    assert "iris" in second
    perfect = copy.deepcopy(FOUND)
    for table in perfect["tables"].values():
        for split in table["splits"]:
            split["wsl fit"] = 1.0
    small = sum(table["mean size"] <= 3 for table in perfect["tables"].values())
    assert tables.verdicts(perfect)[0].endswith(
        f"{small} of the {small} tables whose sets hold at most 3 classes on average."
    )
    assert "nowhere" in tables.verdicts(perfect)[1]


def test_references_learn_from_the_train_part_alone() -> None:
    data = tables.TABLES["iris"](Path())
    train, test = torch.arange(0, 150, 2), torch.arange(1, 150, 2)
    found = tables.references(data, train, test, seed=0)
    assert found["logistic regression, true labels"] > 0.9
    assert found["boosting, true labels"] > 0.85
    assert found["logistic regression, random candidate"] < found["logistic regression, true labels"]
    assert all(np.isfinite(value) for value in found.values())
