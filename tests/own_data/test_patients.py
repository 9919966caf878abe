"""One table of patients as clean CSV, as semicolons with decimal commas in two encodings, and as a workbook."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import patients


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return patients.write(tmp_path_factory.mktemp("patients"), patients.make(240))


def test_the_patients_are_as_described():
    found = patients.make(2000)
    assert found.numbers.shape == (2000, 12)
    assert found.categories.shape == (2000, 4)
    assert abs(np.isnan(found.numbers).mean() - 0.15) < 0.01
    assert abs((found.categories < 0).mean() - 0.15) < 0.02
    assert len(set(found.diagnosis)) == len(patients.DIAGNOSES) == 6
    assert any("," in name for name in patients.DIAGNOSES)
    assert any(ord(letter) > 127 for name in patients.DIAGNOSES for letter in name)
    assert found.noted[np.arange(2000), found.diagnosis].all()
    assert not found.noted.all(axis=1).any()


def test_the_messy_files_are_messy(files):
    clean, windows, marked, _ = (path.read_bytes() for path in files)
    assert b";" not in clean
    assert b"\r\n\r\n;;;" in windows
    assert "Épilepsie, partielle".encode("cp1252") in windows
    assert b"\r\n\r\n" in windows
    assert marked.startswith(b"\xef\xbb\xbf")


@pytest.mark.system
def test_every_form_gives_the_same_model_to_the_bit_and_the_same_predictions(wsl, files):
    assert len(set(patients.fit_all(files, "quick").values())) == 1
    clean = files[0].with_suffix(".model")
    answers = [
        json.dumps(wsl.json("predict", path.with_suffix(".model") if own else clean, path, "--json"))
        for path in files
        for own in (True, False)
    ]
    assert len(set(answers)) == 1


def test_the_fingerprint_tells_models_apart(wsl, files, tmp_path):
    for seed in (0, 1):
        options = ("--epochs", 1, "--lr", 0.1, "--weight-decay", 0, "--seed", seed, "--no-track", "--quiet")
        wsl("fit", files[0], "--out", tmp_path / f"m{seed}", *options)
    assert patients.fingerprint(tmp_path / "m0") != patients.fingerprint(tmp_path / "m1")
