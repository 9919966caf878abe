"""kill -9 at any point of a real study: no run repeated, none lost, everything tracked once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from wsl_toolkit.runs.tracking.store import Tracker, default_uri
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.tracking import KEY, experiment_name

pytestmark = pytest.mark.system

PATIENCE = 240


def start(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "wsl_toolkit.cli", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=home, env=environment, stderr=subprocess.PIPE, start_new_session=True)


def results(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "wsl-runs" / "jobs").glob("*.json")}


def kill_when(driver: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened() and driver.poll() is None:
        assert time.monotonic() < deadline, "the study does not get on"
        time.sleep(0.005)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()


def test_a_study_killed_again_and_again_repeats_and_loses_nothing(
    small: dict[str, Any], run_in: Callable[..., list[CellState]], tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(tomli_w.dumps(small))
    moments = [0, random.Random(5).randint(1, 7), 8]  # results on disk; at the last one it is delivering
    for moment in moments:
        before = results(tmp_path)
        driver = start(tmp_path, "study", "run", "study.toml", "--jobs", "2", "--quiet")
        begun = tmp_path / "wsl-runs" / "studies" / "small" / "study.toml"
        kill_when(driver, lambda moment=moment, begun=begun: begun.exists() and len(results(tmp_path)) >= moment)
        after = results(tmp_path)
        assert before.items() <= after.items(), "a finished run was done again"
    driver = start(tmp_path, "study", "resume", "small", "--jobs", "1", "--quiet")
    _, said = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, said.decode()
    assert after.items() <= results(tmp_path).items()
    assert len(results(tmp_path)) == 8
    check_against_undisturbed(small, run_in, tmp_path)


def check_against_undisturbed(small: dict[str, Any], run_in: Callable[..., list[CellState]], home: Path) -> None:
    """Everything is in the store once, and is what an undisturbed study comes to."""
    undisturbed = run_in(from_dict(small, "test"), home=home / "undisturbed")
    tracker = Tracker(default_uri(home / "wsl-runs"), experiment_name("small"), home / "wsl-runs")
    found = list(tracker.client.search_runs([tracker.experiment_id], max_results=1000))
    keys = [run.data.tags[KEY] for run in found]
    assert len(keys) == len(set(keys)) == 1 + 2 + 8
    assert {run.info.status for run in found} == {"FINISHED"}
    runs = dict(zip(keys, found, strict=True))
    for state in undisturbed:
        for result in state.finished:
            run_id = runs[f"job:{result.job.id}.{result.made_by}"].info.run_id
            for name, values in result.history.items():
                history = tracker.client.get_metric_history(run_id, name)
                assert [metric.step for metric in history] == [1, 2, 3]
                assert [metric.value for metric in history] == pytest.approx(values, rel=1e-4)
