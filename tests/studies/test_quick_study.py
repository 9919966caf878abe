"""The study that the documentation begins with, as a user starts it: real, small, on bundled data."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system


@pytest.mark.usefixtures("fresh_database")
def test_paper_table_3_quick_is_a_real_study(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "wsl_toolkit.cli"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "study", "run", "paper-table-3", "--quick"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    report = tmp_path / "wsl-runs" / "studies" / "paper-table-3-quick" / "report"
    with (report / "trials.csv").open() as file:
        trials = list(csv.DictReader(file))
    assert len(trials) == 3 * 4 * 3
    assert {row["method"] for row in trials} == {"MCL", "PPL", "CC", "LW"}
    assert min(float(row["test/accuracy"]) for row in trials) > 0.85
    sets = {(row["generator"], row["seed"], row["candidates"]) for row in trials}
    assert len(sets) == 3 * 3  # one collection of sets for each α and seed, shared by the four methods
    with (report / "search.csv").open() as file:
        assert sum(row["chosen"] == "yes" for row in csv.DictReader(file)) == 12
    assert "Complete: 12 cells of 3 trials each." in done.stdout
