"""Studies whose tracking server or worker dies: nothing is lost, nothing is done or recorded twice."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from fault_tools import Started, folders, start_wsl, status, wsl
from servers import Server
from slow_proxy import SlowProxy
from test_kills import ARGUMENTS

from tests.waiting import until
from wsl_toolkit.runs.tracking.runs_table import table_numbers
from wsl_toolkit.studies.tracking import KEY

pytestmark = pytest.mark.system

SMALL: dict[str, Any] = {
    "name": "small",
    "trials": 2,
    "training": {"epochs": 3, "batch_size": 128, "validation": 0.1},
    "search": {"epochs": 2, "space": {"lr": [0.01, 0.1]}},
    "settings": [{"dataset": "digits", "generator": {"name": "mcl-skewed", "alpha": 0.8}, "backbone": "linear"}],
    "methods": ["ppl", "cc"],
}
LARGE = {
    **SMALL,
    "name": "large",
    "trials": 4,
    "training": {"epochs": 40, "batch_size": 32, "validation": 0.1, "optimizer": "rmsprop"},
    "search": {"epochs": 40, "space": {"lr": [0.0001, 0.001]}},
    "methods": ["ppl", "cc", "average", "lw", "rc", "proden", "mcl-log", "mcl-mae"],
}
"""RMSprop is not stacked, so that there are many tasks, and results come one by one."""


@pytest.fixture
def server(workspace: Path) -> Iterator[Server]:
    """A real server on the workspace's database, at work."""
    made = Server(workspace, workspace / "wsl-runs" / "mlflow.db")
    made.start()
    yield made
    made.kill()


def start_study(workspace: Path, study: dict[str, Any], *arguments: str, **env: str) -> Started:
    (workspace / "study.toml").write_text(tomli_w.dumps(study))
    return start_wsl(workspace, "study", "run", "study.toml", *arguments, "--quiet", **env)


def results(workspace: Path) -> dict[str, dict[str, Any]]:
    """The results on disk by job."""
    return {path.stem: json.loads(path.read_text()) for path in (workspace / "wsl-runs" / "jobs").glob("*.json")}


def assert_everything_once(workspace: Path, cells: int) -> None:
    """Demand each job, cell and study once in the store, closed, with every value of the results and no other."""
    with sqlite3.connect(workspace / "wsl-runs" / "mlflow.db", timeout=60) as database:
        runs = database.execute(
            "select tags.value, runs.run_uuid, status from runs join tags on runs.run_uuid = tags.run_uuid "
            "where tags.key = ? and lifecycle_stage = 'active'",
            (KEY,),
        ).fetchall()
        rows = database.execute("select run_uuid, key, step, value from metrics where is_nan = 0").fetchall()
    done = results(workspace)
    assert sorted(key for key, _, _ in runs if key.startswith("job:")) == sorted(f"job:{job}" for job in done)
    assert len(runs) == 1 + cells + len(done)
    assert {state for _, _, state in runs} == {"FINISHED"}
    ids = {key: run_id for key, run_id, _ in runs}
    stored: dict[str, list[tuple[str, int, float]]] = {}
    for run_id, name, step, value in rows:
        stored.setdefault(run_id, []).append((name, step, value))
    for job, result in done.items():
        wanted = [(name, step, v) for name, values in result["history"].items() for step, v in enumerate(values, 1)]
        wanted.append(("candidates/mean_size", 1, result["mean_size"]))
        final = {name: values[-1] for name, values in result["history"].items()}
        wanted += [(name, 1, value) for name, value in table_numbers([final]).items()]
        assert sorted(stored[ids[f"job:{job}"]]) == sorted(wanted)


def test_a_server_killed_during_a_study_loses_and_doubles_nothing(workspace: Path, server: Server) -> None:
    started = start_study(
        workspace, SMALL, "--executor", "inline", "--tracking-uri", server.uri, MLFLOW_HTTP_REQUEST_TIMEOUT="5"
    )
    until(lambda: results(workspace) or started.process.exitcode)
    server.kill()
    assert started.wait() == 0, started.said
    assert started.said.count("did not take a record") == 1
    assert len(results(workspace)) == 8, "no result is lost with the server"
    server.start()
    before = results(workspace)
    wsl(workspace, "study", "resume", "small", "--executor", "inline", "--quiet", "--tracking-uri", server.uri)
    assert results(workspace) == before
    assert_everything_once(workspace, 2)


@pytest.mark.long
def test_a_server_killed_ten_times_during_a_study_loses_and_doubles_nothing(workspace: Path, server: Server) -> None:
    dice = random.Random(3)
    started = start_study(
        workspace, LARGE, "--jobs", "2", "--tracking-uri", server.uri, MLFLOW_HTTP_REQUEST_TIMEOUT="5"
    )
    jobs = 8 * (2 + 4)
    for death in range(10):
        moment = (death + dice.random()) * jobs / 10
        until(
            lambda moment=moment: len(results(workspace)) >= moment or started.process.exitcode is not None,
            seconds=1200,
        )
        assert started.process.exitcode is None, f"it ended before death {death}: {started.said}"
        time.sleep(dice.uniform(0, 0.5))
        server.kill()
        meanwhile = len(results(workspace)) + dice.randrange(3)
        until(lambda wanted=meanwhile: len(results(workspace)) >= wanted or started.process.exitcode is not None)
        with paused(started):  # a server takes seconds to start, in which a fast machine would end the study
            server.start()
    assert started.wait(1200) == 0, started.said
    assert started.said.count("did not take a record") == 1, "it met a death, and said so once"
    assert len(results(workspace)) == jobs
    wsl(workspace, "study", "resume", "large", "--executor", "inline", "--quiet", "--tracking-uri", server.uri)
    assert_everything_once(workspace, 8)


def test_a_slow_server_gets_little_time_while_a_study_trains_and_has_everything_at_its_end(
    workspace: Path, server: Server
) -> None:
    proxy = SlowProxy(server.port)
    arguments = ("--executor", "inline", "--tracking-uri", proxy.uri)
    started = start_study(workspace, {**SMALL, "methods": ["cc"]}, *arguments)
    until(lambda: results(workspace) or started.process.exitcode)
    proxy.delay = 0.3
    assert started.wait() == 0, started.said
    proxy.close()
    assert proxy.held > 0
    assert_everything_once(workspace, 1)


def test_a_worker_killed_in_a_parallel_study_costs_nothing_but_its_task(workspace: Path) -> None:
    started = start_study(workspace, {**SMALL, "methods": ["cc"]}, "--jobs", "2")
    shot = until(lambda: children(started.process.pid) or started.process.exitcode is not None)
    assert started.process.exitcode is None
    os.kill(shot[0], signal.SIGKILL)
    assert started.wait() == 0, started.said
    assert len(results(workspace)) == 4
    assert_everything_once(workspace, 1)


@contextmanager
def paused(started: Started) -> Iterator[None]:
    """Stop a study and its workers for a while."""
    family = [started.process.pid, *children(started.process.pid)] if started.process.exitcode is None else []
    for process in family:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in family:
            os.kill(process, signal.SIGCONT)


def children(process: int | None) -> list[int]:
    """The workers of a study: the children that were spawned, not the tracker of their resources."""
    family = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in family if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_a_study_marks_runs_whose_process_died(workspace: Path) -> None:
    dead = start_wsl(workspace, *ARGUMENTS)
    until(lambda: folders(workspace) and folders(workspace)[0].records())
    dead.kill()
    (folder,) = folders(workspace)
    assert status(workspace, folder.run_id) == "RUNNING"
    started = start_study(workspace, {**SMALL, "methods": ["cc"]}, "--executor", "inline")
    assert started.wait() == 0, started.said
    assert f"run {folder.run_id} is marked KILLED" in started.said
    assert status(workspace, folder.run_id) == "KILLED"
