"""The same results from a .mat file and from its CSV export: digits with made candidates; lost, MSRCv2, BirdSong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from sklearn.datasets import load_digits

from wsl_toolkit.data.formats import sources
from wsl_toolkit.plugins.loading import load_plugins

SETTINGS = ("--estimator", "ppl", "--lr", 0.03, "--weight-decay", 0.001, "--quiet")
EPOCHS = {"lost": 20, "MSRCv2": 20, "BirdSong": 8, "digits": 20}
PUBLISHED = {"lost": (0.441, 0.782), "MSRCv2": (0.288, 0.599), "BirdSong": (0.519, 0.749), "digits": (0.0, 1.0)}
"""Between the lowest and the highest accuracy of others, see docs/own-data.md; beyond the highest would be a leak."""

EXPECTED = {"lost": (0.63, 0.782), "MSRCv2": (0.39, 0.48), "BirdSong": (0.63, 0.749), "digits": (0.90, 0.98)}
"""Where a linear model's accuracy on one split must lie after the few epochs of this test."""

MARGIN = {"lost": 0.25, "MSRCv2": 0.15, "BirdSong": 0.15, "digits": 0.25}
"""How much better cleaned labels must be than the most frequent candidate."""

ORDER = {"digits": 0.03}
"""How much more often the half that the review puts last is right than the half it puts first; 0.1 of the others."""


@pytest.fixture
def digits_mat(tmp_path: Path) -> Path:
    """Every third bundled digit, each label in the company of its successor and sometimes of others."""
    x, y = load_digits(return_X_y=True)
    x, y = x[::3], y[::3]
    rng = np.random.default_rng(0)
    candidates = rng.random((len(y), 10)) < 0.1
    candidates[np.arange(len(y)), (y + 1) % 10] |= rng.random(len(y)) < 0.6
    candidates[np.arange(len(y)), y] = True
    target = np.eye(10)[y]
    savemat(tmp_path / "digits.mat", {"data": x, "partial_target": candidates.T * 1.0, "target": target.T})
    return tmp_path / "digits.mat"


def test_mat_and_csv_of_bundled_digits_give_the_same_results(wsl, digits_mat):
    check_mat_and_csv_agree(wsl, digits_mat)


@pytest.mark.data("pll")
@pytest.mark.parametrize("name", ["lost", "MSRCv2", "BirdSong"])
def test_mat_and_csv_give_the_same_audit_model_predictions_and_cleaned_labels(wsl, data_dir, name):
    check_mat_and_csv_agree(wsl, data_dir / "pll" / f"{name}.mat")


def check_mat_and_csv_agree(wsl, mat: Path) -> None:
    name = mat.stem
    registry = load_plugins().registry
    data = sources.load(mat, {}, registry, mat.parent)
    csv = wsl.home / f"{name}.csv"
    sources.write(data, csv, {}, registry)

    audits = [wsl.json("audit", path, "--json") for path in (mat, csv)]
    understood = [found.pop("understood") for found in audits]
    assert understood[0] is None, "only a table has columns with roles"
    assert [column["role"] for column in understood[1]["columns"]].count("number") == data.x.shape[1]
    assert audits[0] == audits[1]
    assert audits[0]["settings"]["MCL"]["verdict"] == "refuted"

    train = (*SETTINGS, "--epochs", EPOCHS[name])
    reports = [
        wsl.json("fit", path, *train, "--out", f"model-{path.suffix[1:]}", "--no-track", "--json")
        for path in (mat, csv)
    ]
    assert reports[0]["held_out"] == reports[1]["held_out"]
    (low, high), (lowest, highest) = EXPECTED[name], PUBLISHED[name]
    assert lowest <= low <= reports[0]["held_out"]["accuracy"] <= high <= highest

    predicted = [predictions(wsl, path) for path in (mat, csv)]
    pd.testing.assert_frame_equal(*predicted)

    summaries = [
        wsl.json("clean", path, *train, "--folds", 2, "--out", f"clean-{path.suffix[1:]}.csv", "--json")
        for path in (mat, csv)
    ]
    frames = [pd.read_csv(f"clean-{path.suffix[1:]}.csv") for path in (mat, csv)]
    pd.testing.assert_frame_equal(*frames)
    found = summaries[0]
    assert found["accuracy"] > found["accuracy_of_most_frequent_candidate"] + MARGIN[name]
    right = frames[0]["label"].to_numpy() == data.y.numpy()
    order = np.argsort(frames[0]["review"].to_numpy())
    half = len(order) // 2
    assert right[order[half:]].mean() > right[order[:half]].mean() + ORDER.get(name, 0.1)


def predictions(wsl, path: Path) -> pd.DataFrame:
    out = wsl.home / f"predicted-{path.suffix[1:]}.parquet"
    wsl("predict", f"model-{path.suffix[1:]}", path, "--out", out)
    return pd.read_parquet(out)
