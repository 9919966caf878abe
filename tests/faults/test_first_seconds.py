"""The store's first seconds: whoever is killed while a database is made, the next run works."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from fault_tools import Started, start_wsl, wsl

from tests.waiting import until
from wsl_toolkit.errors import TrackingError
from wsl_toolkit.runs.tracking import database
from wsl_toolkit.runs.tracking.store import Tracker, default_uri

RUN = ("run", "--backbone", "linear", "--epochs", "1", "--quiet")


def check_kills(place: Path, seed: int, kills: int) -> None:
    """Kill the first run of an empty folder again and again in its first seconds; then demand one that works."""
    dice = random.Random(seed)
    for number in range(kills):
        folder = place / str(number)
        folder.mkdir()
        started = start_wsl(folder, *RUN)
        time.sleep(dice.uniform(0, 3))
        started.send(dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
        started.wait()
        wsl(folder, *RUN)
        home = folder / "wsl-runs"
        assert database.is_whole(home / "mlflow.db")
        assert [path.name for path in home.glob(".mlflow.db.new-*")] == []
        with sqlite3.connect(home / "mlflow.db") as found:
            assert "FINISHED" in {status for (status,) in found.execute("select status from runs")}


@pytest.mark.system
def test_kills_in_the_first_three_seconds_of_an_empty_folder_leave_a_store_that_works(tmp_path: Path) -> None:
    check_kills(tmp_path, 28, 3)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(2028, 2038))
def test_a_hundred_kills_in_the_first_three_seconds_leave_a_store_that_works(seed: int, tmp_path: Path) -> None:
    check_kills(tmp_path, seed, 10)


def make_as_mlflow_does(uri: str) -> None:
    import mlflow

    mlflow.MlflowClient(tracking_uri=uri).search_experiments()


def left_half_made(folder: Path) -> Path:
    """Return a database whose making by MLflow itself was broken off by a kill."""
    home = folder / "wsl-runs"
    home.mkdir()
    path = home / "mlflow.db"
    started = Started(folder, make_as_mlflow_does, default_uri(home))
    until(lambda: path.exists() and path.stat().st_size > 0)
    started.kill()
    assert path.exists()
    return path


@pytest.mark.system
def test_a_database_that_a_kill_left_half_made_is_recognised_and_made_anew(tmp_path: Path) -> None:
    path = left_half_made(tmp_path)
    assert not database.is_whole(path)
    told = json.loads(wsl(tmp_path, "doctor", "--json"))["findings"]
    (found,) = [finding["text"] for finding in told if finding["topic"] == "tracking"]
    assert "half-made, and nothing is in it: the next run makes it anew" in found
    wsl(tmp_path, *RUN)
    assert database.is_whole(path)
    assert "answers" in wsl(tmp_path, "doctor")


def test_an_empty_file_is_a_half_made_database_and_a_foreign_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    path.touch()
    assert not database.is_whole(path)
    path.write_bytes(b"what somebody else keeps here" * 100)
    with pytest.raises(TrackingError, match="is damaged"):
        Tracker(default_uri(tmp_path), "wsl-digits", tmp_path)
    assert path.read_bytes().startswith(b"what somebody else")


def open_store(home: str) -> None:
    Tracker(default_uri(Path(home)), "wsl-digits", Path(home))


def test_processes_that_open_a_fresh_store_together_all_get_it(tmp_path: Path) -> None:
    started = [Started(tmp_path, open_store, str(tmp_path / "wsl-runs")) for _ in range(4)]
    assert [one.wait() for one in started] == [0] * 4, [one.said for one in started]
