"""`wsl run` under torchrun, as a user starts it: one tracked run, the same as a single process's, resumed anywhere."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rank_processes import assert_same_state

from tests.waiting import until
from wsl_toolkit.runs.folder import RunFolder, all_folders
from wsl_toolkit.training.checkpoints import read

pytestmark = pytest.mark.system

RUN = ["run", "--estimator", "ppl", "--generator", "mcl-skewed", "--epochs", "30"]
RUN += ["--batch-size", "32", "--checkpoint-every", "1"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def command(ranks: int, arguments: list[str]) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *launcher, "-m", "wsl_toolkit.cli", *arguments]


def wsl(home: Path, ranks: int, *arguments: str) -> str:
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        command(ranks, list(arguments)), cwd=home, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def the_run(home: Path) -> RunFolder:
    (folder,) = all_folders(home / "wsl-runs")
    return folder


def final_state(home: Path) -> dict[str, Any]:
    (path,) = (the_run(home).path / "checkpoints").glob("*.pt")
    state: dict[str, Any] = read(path)["trainer"]
    return state


def metrics(home: Path) -> list[dict[str, float]]:
    return [timed.record.metrics for timed in the_run(home).records()]


def assert_same_run(one: Path, other: Path) -> None:
    assert_same_state(final_state(one), final_state(other), **CLOSE)
    for mine, theirs in zip(metrics(one), metrics(other), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-3)


def test_a_run_stopped_on_two_ranks_goes_on_on_one_and_on_four_to_the_run_of_a_single_process(tmp_path: Path) -> None:
    alone, two = tmp_path / "alone", tmp_path / "two"
    wsl(alone, 1, *RUN)
    two.mkdir()
    driver = subprocess.Popen(command(2, RUN), cwd=two, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    until(lambda: list(two.glob("wsl-runs/runs/*/checkpoints/*.pt")), "no checkpoint comes")
    driver.send_signal(signal.SIGTERM)  # the launcher passes it on; all ranks stop after the same step
    _, said = driver.communicate(timeout=120)
    assert said.count("stopped by SIGTERM") == 1, said
    assert the_run(two).fact("status") == "KILLED"
    assert 0 < len(metrics(two)) < len(metrics(alone))
    for ranks in (1, 4):
        home = tmp_path / f"on-{ranks}"
        shutil.copytree(two / "wsl-runs", home / "wsl-runs")
        said = wsl(home, ranks, "run", "--resume", the_run(home).run_id)
        assert said.count(f"ranks was 2 and is {ranks} now") == 1
        assert said.count(f"run {the_run(home).run_id} in experiment") == 1, "only rank 0 speaks"
        assert_same_run(home, alone)
        with sqlite3.connect(home / "wsl-runs" / "mlflow.db") as database:
            assert database.execute("select status from runs").fetchall() == [("FINISHED",)]


def test_a_mistake_is_said_by_rank_0_and_ends_all_ranks(tmp_path: Path) -> None:
    done = subprocess.run(
        command(2, ["run", "--dataset", "mnist", "--data-dir", str(tmp_path / "nowhere"), "--optimizer", "moon"]),
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    assert done.stderr.count("no optimiser is named 'moon'") == 1
