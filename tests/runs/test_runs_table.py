"""The columns of MLflow's table of runs: short, rounded, and the same for trials, runs and cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wsl_toolkit.runs.tracking.runs_table import (
    NUMBERS,
    PADDING,
    WIDTH_OF_A_LETTER,
    runs_page,
    table_numbers,
    table_tags,
)
from wsl_toolkit.runs.tracking.store import Tracker, default_uri


def test_a_row_holds_rounded_means_an_error_and_the_number_of_trials() -> None:
    trials = [{"test/accuracy": 0.91111, "train/risk": 0.3, "time/epoch_seconds": 1.0}, {"test/accuracy": 0.93333}]
    assert table_numbers(trials) == {"accuracy": 0.9222, "accuracy SE": 0.0111, "risk": 0.3, "trials": 2.0}
    assert table_numbers(trials[:1]) == {"accuracy": 0.9111, "risk": 0.3, "trials": 1.0}
    assert table_numbers([]) == {}


def test_a_row_names_its_components_and_the_parameters_of_its_generator() -> None:
    components: dict[str, Any] = {
        "estimator": ("ppl", {"loss": "mae"}),
        "generator": ("mcl-skewed", {"alpha": 0.7, "sizes": list(range(100))}),
        "backbone": ("linear", {}),
    }
    wanted = {"method": "ppl", "generator": "mcl-skewed", "network": "linear", "alpha": "0.7"}
    assert table_tags(components) == wanted
    assert table_tags({**components, "generator": None}) == {"method": "ppl", "network": "linear"}


@pytest.mark.usefixtures("fresh_database")
def test_the_link_shows_short_columns_that_fit_and_of_a_study_the_cells(tmp_path: Path) -> None:
    home = tmp_path / "wsl-runs"
    uri = default_uri(home)
    tracker = Tracker(uri, "wsl-made", home)

    def record(tags: dict[str, str], params: dict[str, str]) -> None:
        run_id = tracker.client.create_run(tracker.experiment_id, tags=tags).info.run_id
        for key, value in params.items():
            tracker.client.log_param(run_id, key, value)

    def shown() -> dict[str, Any]:
        assert runs_page(uri, "wsl-made").endswith("&viewStateShareKey=wsl")
        tags = tracker.client.get_experiment(tracker.experiment_id).tags
        view: dict[str, Any] = json.loads(tags["mlflow.sharedViewState.wsl"])
        return view

    record({"alpha": "0.9"}, {"generator.name": "mcl-skewed", "generator.alpha": "0.9", "generator.other": "1"})
    view = shown()
    facts = ("method", "generator", "alpha", "network", "data")
    wanted = [*(f"metrics.`{name}`" for name in NUMBERS), *(f"tags.`{name}`" for name in facts)]
    assert view["selectedColumns"] == wanted
    assert view["columnOrder"][1:] == wanted
    for column in wanted:
        letters = len(column.partition("`")[2]) - 1
        assert view["columnWidths"][column] >= letters * WIDTH_OF_A_LETTER + PADDING, f"the header of {column} is cut"
    assert view["searchFilter"] == ""
    record({"wsl.key": "study"}, {})
    record({"wsl.key": "cell:digits | ppl"}, {})
    found = tracker.client.search_runs([tracker.experiment_id], shown()["searchFilter"])
    assert [run.data.tags["wsl.key"] for run in found] == ["cell:digits | ppl"]
