"""The wall: true labels beside candidate sets are for evaluation. Other labels change no weight, choice or set."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.own_data.conftest import ZOO, write_csv, zoo_rows
from wsl_toolkit import train
from wsl_toolkit.data.dataset import split
from wsl_toolkit.data.formats.readers import Csv
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data.audit.report import best_estimator
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.random_streams import stream

pytestmark = pytest.mark.usefixtures("small_pictures")

FAST = ("--epochs", 2, "--quiet")
RUN = ("--dataset-candidates-column", "espèces", "--dataset-label-column", "vérité", "--dataset-id-column", "nom")


def with_labels(path: Path, permute: bool, complete: bool = True) -> Path:
    """Write a table whose true labels, in every part of it, are right or are other examples'."""
    rows = zoo_rows(120)
    if complete:  # a set of each row holds its label, so that the first candidate will do for one
        for row in rows:
            row["vérité"] = row["espèces"].split("|")[0]
    labels = [row["vérité"] for row in rows]
    order = np.random.default_rng(3).permutation(len(rows)) if permute else range(len(rows))
    for row, place in zip(rows, order, strict=True):
        row["vérité"] = labels[place]
    return write_csv(path, rows)


@pytest.fixture(params=[True, False], ids=["all known", "some known"])
def tables(tmp_path, request) -> list[Path]:
    """The same data under the same name with its labels, and with other ones."""
    found = []
    for permute in (False, True):
        (tmp_path / str(permute)).mkdir()
        found.append(with_labels(tmp_path / str(permute) / "zoo.csv", permute, complete=request.param))
    assert found[0].read_text(encoding="utf-8") != found[1].read_text(encoding="utf-8")
    return found


def loaded(path: Path):
    return Csv(path=path, candidates_column=("espèces",), label_column="vérité", id_column="nom").load(Path())


def test_parts_inputs_and_sets_are_the_same(tables):
    one, other = (loaded(path) for path in tables)
    for seed in range(5):
        first, second = (split(data, 0.1, 0.2, stream(seed, "split")) for data in (one, other))
        for part in ("train", "validation", "test"):
            assert torch.equal(getattr(first, part), getattr(second, part)), part
        a, b = (make_problem(data, None, seed=seed, validation=0.1, test=0.2) for data in (one, other))
        assert torch.equal(a.train_x, b.train_x)
        assert torch.equal(a.validation_x, b.validation_x)
        assert torch.equal(a.train_candidates.mask(), b.train_candidates.mask())
        assert torch.equal(a.validation_candidates.mask(), b.validation_candidates.mask())


@pytest.fixture
def folder_of_run(wsl):
    """A function that runs a table and returns the weights and the sets of the run."""

    def run(path: Path, estimator: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        arguments = ("--dataset", "csv", "--dataset-path", path, *RUN, "--estimator", estimator, "--epochs", 2)
        found = json.loads(wsl("run", *arguments, "--json").stdout)
        folder = wsl.home / "wsl-runs" / "runs" / found["run_id"]
        (checkpoint,) = folder.glob("checkpoints/*.pt")
        weights = torch.load(checkpoint, weights_only=True)["trainer"]["model"]
        return weights, CandidateSets.load(folder / "candidates.safetensors").mask()

    return run


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.usefixtures("fresh_database")
@pytest.mark.parametrize("tables", [True], indirect=True)
def test_a_run_has_the_same_weights_and_sets(tables, folder_of_run):
    (first, sets), (second, other_sets) = (folder_of_run(path, "ppl") for path in tables)
    assert same(first, second)
    assert torch.equal(sets, other_sets)


@pytest.mark.parametrize("tables", [True], indirect=True)
@pytest.mark.parametrize("estimator", ["ppl", "mcl-log", "proden", "lw", "valen", "supervised"])
def test_a_training_from_python_has_the_same_weights(tables, estimator):
    first, second = (train(loaded(path), estimator=estimator, epochs=2).model.state_dict() for path in tables)
    if estimator == "supervised":
        assert not same(first, second), "the estimator that may see true labels does"
    else:
        assert same(first, second)


def test_audit_chooses_and_fit_and_clean_work_alike(wsl, tables):
    registry = load_plugins().registry
    assert len({best_estimator(loaded(path), registry) for path in tables}) == 1
    for estimator in ((), ("--estimator", "cc")):
        reports, models, cleaned = [], [], []
        for number, path in enumerate(tables):
            name = f"{number}{len(estimator)}"
            options = (*ZOO, *FAST, *estimator)
            reports.append(wsl.json("fit", path, *options, "--out", name, "--no-track", "--json"))
            models.append(load_file(wsl.home / name / "data" / "model.safetensors"))
            wsl("clean", path, *options, "--lr", 0.1, "--weight-decay", 0, "--folds", 2, "--out", f"{name}.csv")
            cleaned.append((wsl.home / f"{name}.csv").read_text(encoding="utf-8"))
        assert reports[0]["held_out"].pop("accuracy") != reports[1]["held_out"].pop("accuracy")
        for report in reports:
            for name in ("known_labels", "calibration_error", "calibration_error_before"):
                report["held_out"].pop(name)
            report.pop("model")
        assert reports[0] == reports[1]
        assert same(*models)
        assert cleaned[0] == cleaned[1]


def test_a_class_that_is_only_a_true_label_adds_no_output(wsl, tmp_path):
    rows = zoo_rows(60)
    rows[7]["vérité"] = "licorne"
    path = write_csv(tmp_path / "zoo.csv", rows)
    told = wsl.refused("fit", path, *ZOO, *FAST, "--out", "m", "--no-track")
    assert "row 8, column 'vérité': unknown class 'licorne'" in told
    assert "--classes" in told
    names = ",".join([*sorted({name for row in rows for name in row["espèces"].split("|")}), "licorne"])
    report = wsl.json("fit", path, *ZOO, *FAST, "--classes", names, "--out", "m", "--no-track", "--json")
    assert "licorne" in report["class_names"]
