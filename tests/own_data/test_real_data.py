"""lost, MSRCv2 and BirdSong: the same results from the .mat files and from CSV exports of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wsl_toolkit.data.formats import sources
from wsl_toolkit.plugins.loading import load_plugins

SETTINGS = ("--estimator", "ppl", "--lr", 0.03, "--weight-decay", 0.001, "--quiet")
EPOCHS = {"lost": 20, "MSRCv2": 20, "BirdSong": 8}
PUBLISHED = {"lost": (0.441, 0.782), "MSRCv2": (0.288, 0.599), "BirdSong": (0.519, 0.749)}
"""Between the lowest and the highest accuracy of others, see docs/own-data.md; beyond the highest would be a leak."""

EXPECTED = {"lost": (0.63, 0.782), "MSRCv2": (0.39, 0.48), "BirdSong": (0.63, 0.749)}
"""Where a linear model's accuracy on one split must lie after the few epochs of this test."""

MARGIN = {"lost": 0.25, "MSRCv2": 0.15, "BirdSong": 0.15}
"""How much better cleaned labels must be than the most frequent candidate."""


@pytest.fixture(params=EXPECTED)
def name(request) -> str:
    return str(request.param)


def test_mat_and_csv_give_the_same_audit_model_predictions_and_cleaned_labels(wsl, data_dir, name):
    mat = data_dir / "pll" / f"{name}.mat"
    registry = load_plugins().registry
    data = sources.load(mat, {}, registry, data_dir)
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
    # The list for review is worth its order: what it puts last is right more often than what it puts first.
    right = frames[0]["label"].to_numpy() == data.y.numpy()
    order = np.argsort(frames[0]["review"].to_numpy())
    half = len(order) // 2
    assert right[order[half:]].mean() > right[order[:half]].mean() + 0.1


def predictions(wsl, path: Path) -> pd.DataFrame:
    out = wsl.home / f"predicted-{path.suffix[1:]}.parquet"
    wsl("predict", f"model-{path.suffix[1:]}", path, "--out", out)
    return pd.read_parquet(out)
