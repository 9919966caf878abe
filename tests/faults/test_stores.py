"""Tracking stores that are slow, gone, locked or crowded: training goes on, and nothing is lost or doubled."""

from __future__ import annotations

import collections
import json
import random
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from fault_tools import Started, folders, history, start_wsl, status, statuses, wsl
from servers import Server, free_port
from slow_proxy import SlowProxy
from test_kills import ARGUMENTS, EPOCHS, assert_same_run

from tests.waiting import until
from wsl_toolkit.errors import TrackingError
from wsl_toolkit.runs.folder import FINISHED, RUNNING, RunFolder
from wsl_toolkit.runs.tracking import run_folders
from wsl_toolkit.runs.tracking.run_folders import LOCAL_ID
from wsl_toolkit.runs.tracking.store import Tracker, default_uri
from wsl_toolkit.runs.tracking.tracked_run import TrackedRun
from wsl_toolkit.system.processes import Process
from wsl_toolkit.training.engine import EpochRecord

pytestmark = pytest.mark.system


@pytest.fixture
def server(workspace: Path) -> Iterator[Server]:
    """A real server on the workspace's database, not started yet."""
    made = Server(workspace, workspace / "wsl-runs" / "mlflow.db")
    with sqlite3.connect(made.database) as database:
        database.execute("update experiments set artifact_location = 'mlflow-artifacts:/' || experiment_id")
    yield made
    made.kill()


def test_a_server_that_is_gone_at_the_start_is_one_line_at_once(workspace: Path) -> None:
    start = time.monotonic()
    said = wsl(workspace, *ARGUMENTS, "--tracking-uri", f"http://u:s3cret@127.0.0.1:{free_port()}", code=3)
    assert time.monotonic() - start < 120  # MLflow alone: 246 s
    assert said.count("\n") == 1
    assert "no tracking server answers at http://***@127.0.0.1" in said
    assert "s3cret" not in said
    assert folders(workspace) == []


def test_a_server_that_never_answers_does_not_hold_a_run_for_long(workspace: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        start = time.monotonic()
        said = wsl(workspace, *ARGUMENTS, "--tracking-uri", f"http://127.0.0.1:{silent.getsockname()[1]}", code=3)
        assert time.monotonic() - start < 300  # MLflow alone: 1206 s
    assert said.count("\n") == 1


def test_a_database_locked_in_the_middle_stops_no_training_and_sync_delivers_the_rest(
    workspace: Path, reference: Path
) -> None:
    # Slow enough to be met in the middle: ten times the reference's length before the lock is let go.
    started = start_wsl(workspace, *ARGUMENTS)
    until(lambda: folders(workspace) and folders(workspace)[0].records())
    lock = sqlite3.connect(workspace / "wsl-runs" / "mlflow.db", isolation_level=None, timeout=60)
    lock.execute("BEGIN IMMEDIATE")
    try:
        assert started.wait() == 0, started.said
    finally:
        lock.execute("ROLLBACK")
        lock.close()
    (folder,) = folders(workspace)
    assert "nothing is lost" in started.said
    assert "`wsl sync` delivers it" in started.said
    assert status(workspace, folder.run_id) == "RUNNING"
    said = wsl(workspace, "sync")
    assert f"run {folder.run_id}:" in said
    assert "metric values" in said
    assert_same_run(workspace, reference)
    assert len(list((workspace / "wsl-runs" / "artifacts" / "models").rglob("MLmodel"))) == 1
    assert "nothing waits" in wsl(workspace, "sync")
    assert_same_run(workspace, reference)


def test_a_fit_that_the_store_did_not_take_is_kept_on_disk_and_delivered_by_sync(workspace: Path) -> None:
    rows = [f"{n % 7},{n % 3},{'a|b' if n % 2 else 'b|c'}" for n in range(60)]
    (workspace / "zoo.csv").write_text("x,z,kind\n" + "\n".join(rows) + "\n")
    fit = ("fit", "zoo.csv", "--candidates-column", "kind", "--epochs", "2", "--quiet", "--experiment", "wsl-digits")
    with sqlite3.connect(workspace / "wsl-runs" / "mlflow.db", isolation_level=None, timeout=60) as lock:
        lock.execute("BEGIN IMMEDIATE")
        said = wsl(workspace, *fit, "--out", "m", code=3)
        lock.execute("ROLLBACK")
    assert "the model is written, but" in said
    assert "`wsl sync` delivers it" in said
    (folder,) = folders(workspace)
    assert folder.is_offline
    assert "metric values" in wsl(workspace, "sync")
    (folder,) = folders(workspace)
    assert statuses(workspace) == ["FINISHED"]
    assert history(workspace, folder.run_id).keys() == {
        "held_out/covering_rate",
        "held_out/approximated_accuracy",
        "held_out/set_log_loss",
        "temperature",
        "seconds",
        "covering",
        "trials",
    }
    assert len(list((workspace / "wsl-runs" / "artifacts" / "models").rglob("model.safetensors"))) == 1


def test_a_run_that_died_before_the_store_knew_it_can_be_resumed(workspace: Path, reference: Path) -> None:
    (other,) = folders(reference)
    folder = RunFolder.new(workspace / "wsl-runs")
    shutil.copy(other.path / "config.toml", folder.path)
    facts = json.loads((other.path / "run.json").read_text())
    kept = ("name", "params", "tags", "description", "parent", "started", "experiment", "store", "data_dir")
    folder.note(**{key: facts[key] for key in kept}, status=RUNNING)
    died = attrs.asdict(attrs.evolve(Process.current(), began="long ago"))
    (folder.path / "process.json").write_text(json.dumps(died))
    said = wsl(workspace, "run", "--resume", folder.run_id, "--quiet")
    assert f"run {folder.run_id} is marked KILLED" in said
    assert_same_run(workspace, reference)


# ------------------------------------------------------------------ many writers


def write_runs(home: str, writer: int, runs: int) -> None:
    """Track runs without training: what the store gets is the same."""
    tracker = Tracker(default_uri(Path(home)), "wsl-digits", Path(home))
    for number in range(runs):
        folder = RunFolder.new(Path(home))
        folder.enter()
        folder.note(
            name=f"{writer}-{number}",
            params={"seed": number, "writer": writer},
            tags={},
            description="",
            started=int(time.time() * 1000),
            status=RUNNING,
            experiment=tracker.experiment,
            store=None,
        )
        tracked = TrackedRun(tracker, folder)
        tracked.begin(offline_allowed=False)
        for epoch in range(1, 11):
            tracked.log_epoch(folder.append(EpochRecord(epoch=epoch, metrics={"train/risk": 1 / epoch}, seconds=0.1)))
            if epoch % 4 == 0:
                tracked.flush()
        tracked.finish(FINISHED)


def check_parallel_writers(workspace: Path, writers: int, runs: int) -> None:
    home = workspace / "wsl-runs"
    started = [Started(workspace, write_runs, str(home), writer, runs) for writer in range(writers)]
    assert [one.wait(3000) for one in started] == [0] * writers, [one.said for one in started]
    wsl(workspace, "sync")
    found = folders(workspace)
    assert len(found) == writers * runs
    assert statuses(workspace) == ["FINISHED"] * (writers * runs)
    with sqlite3.connect(home / "mlflow.db") as database:
        names = [row[0] for row in database.execute("select name from runs")]
        counts = database.execute("select run_uuid, key, count(*), count(distinct step) from metrics group by 1, 2")
        per_run = collections.Counter((n, steps) for _, _, n, steps in counts)
    assert sorted(names) == sorted(f"{w}-{n}" for w in range(writers) for n in range(runs))
    assert per_run == {(10, 10): 2 * writers * runs}


def test_parallel_writers_lose_nothing_in_one_database(workspace: Path) -> None:
    check_parallel_writers(workspace, 3, 4)


@pytest.mark.long
def test_four_processes_write_200_runs_into_one_database(workspace: Path) -> None:
    check_parallel_writers(workspace, 4, 50)


# ------------------------------------------------------------------ lost servers


def trained_through_deaths(workspace: Path, server: Server, deaths: int, trials: int, dice: random.Random) -> None:
    """Train while the server is killed and started again; then demand everything once."""
    server.start()
    arguments = (*ARGUMENTS, "--trials", str(trials), "--tracking-uri", server.uri)
    # A short patience, so that a small run meets many deaths.
    started = start_wsl(workspace, *arguments, MLFLOW_HTTP_REQUEST_TIMEOUT="5")
    until(lambda: any(folder.records() for folder in folders(workspace)) or started.process.exitcode)
    for _ in range(deaths):
        time.sleep(dice.uniform(0, 1.0))
        server.kill()
        time.sleep(dice.uniform(0, 1.0))
        server.start()
    server.kill()
    assert started.wait(1200) == 0, started.said
    server.start()
    wsl(workspace, "sync", "--tracking-uri", server.uri)
    assert_everything_once(workspace, trials)
    assert "nothing waits" in wsl(workspace, "sync", "--tracking-uri", server.uri)


def assert_everything_once(workspace: Path, trials: int) -> None:
    """Demand every metric of every trial in the store, no run and no step twice, and every run closed."""
    found = folders(workspace)
    assert len(found) == trials + 1
    assert [folder.fact("delivered") for folder in found] == [True] * (trials + 1)
    assert statuses(workspace) == ["FINISHED"] * (trials + 1)
    for folder in found:
        stored = history(workspace, folder.run_id)
        for timed in folder.records():
            for key, value in timed.record.metrics.items():
                assert stored[key][timed.record.epoch - 1] == (timed.record.epoch, value)
        for values in stored.values():
            assert len({step for step, _ in values}) == len(values), "no step twice"
    assert sum(len(folder.records()) for folder in found) == trials * EPOCHS


def test_a_server_killed_in_the_middle_loses_nothing_and_later_trials_start_without_it(
    workspace: Path, server: Server
) -> None:
    trained_through_deaths(workspace, server, 0, 2, random.Random(1))


@pytest.mark.long
def test_a_server_killed_ten_times_during_a_run_of_ten_trials_loses_and_doubles_nothing(
    workspace: Path, server: Server
) -> None:
    trained_through_deaths(workspace, server, 10, 10, random.Random(2))


# ------------------------------------------------------------------ slow servers


@pytest.fixture
def proxy(server: Server) -> Iterator[SlowProxy]:
    """A way to a real server that can be made slow."""
    server.start()
    made = SlowProxy(server.port)
    yield made
    made.close()


def test_a_server_that_is_slow_in_the_middle_gets_everything_once(workspace: Path, proxy: SlowProxy) -> None:
    started = start_wsl(workspace, *ARGUMENTS, "--trials", "2", "--tracking-uri", proxy.uri)
    until(lambda: any(folder.records() for folder in folders(workspace)) or started.process.exitcode)
    proxy.delay = 0.2
    assert started.wait() == 0, started.said
    assert proxy.held > 5
    assert "did not take" not in started.said
    assert_everything_once(workspace, 2)


def test_answers_that_come_too_late_stop_no_training_and_what_they_spoke_of_is_not_done_twice(
    workspace: Path, proxy: SlowProxy
) -> None:
    """The server does what it is asked, and the answer is lost: the worst case for whoever asks again."""
    arguments = (*ARGUMENTS, "--trials", "2", "--tracking-uri", proxy.uri)
    started = start_wsl(workspace, *arguments, MLFLOW_HTTP_REQUEST_TIMEOUT="2")
    until(lambda: any(len(folder.records()) > 5 for folder in folders(workspace)) or started.process.exitcode)
    proxy.delay = 6.0
    assert started.wait() == 0, started.said
    assert proxy.held > 0
    assert "`wsl sync` delivers it" in started.said
    proxy.delay = 0.0
    wsl(workspace, "sync", "--tracking-uri", proxy.uri)
    assert_everything_once(workspace, 2)
    assert "nothing waits" in wsl(workspace, "sync", "--tracking-uri", proxy.uri)


def test_a_server_whose_answers_trickle_holds_no_epoch_and_no_end_for_long(
    workspace: Path, proxy: SlowProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = workspace / "wsl-runs"
    tracker = Tracker(proxy.uri, "wsl-digits", home)
    folder = RunFolder.new(home)
    folder.note(name="one", params={}, started=1, status=RUNNING, experiment="wsl-digits", store=tracker.label)
    tracked = TrackedRun(tracker, folder)
    tracked.begin(offline_allowed=False)
    proxy.trickles = True
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")  # between two bytes; a delivery as a whole gets six seconds
    for epoch in range(1, 4):
        tracked.log_epoch(folder.append(EpochRecord(epoch=epoch, metrics={"train/risk": 0.5}, seconds=0.1)))
        start = time.monotonic()
        tracked.flush()
        assert time.monotonic() - start < 1
    start = time.monotonic()
    tracked.finish(FINISHED)
    assert time.monotonic() - start < 30
    assert "`wsl sync` delivers it" in (tracked.warning or "")
    with pytest.raises(TrackingError, match=r"did not answer within 6 seconds|no tracking server answers"):
        Tracker(proxy.uri, "wsl-digits", home)
    proxy.trickles = False
    wsl(workspace, "sync", "--tracking-uri", proxy.uri)
    assert history(workspace, folders(workspace)[0].run_id)["train/risk"] == [(1, 0.5), (2, 0.5), (3, 0.5)]


def test_a_store_that_was_deleted_gets_its_runs_anew_and_blocks_no_other(workspace: Path, reference: Path) -> None:
    home = workspace / "wsl-runs"
    (other,) = folders(reference)
    for name in ("0" * 32, "1" * 32):
        shutil.copytree(other.path, home / "runs" / name)
        RunFolder(home, name).note(delivered=False, local_id=f"offline-{name}")
    said = wsl(workspace, "sync")
    assert said.count("to a new run: the store has lost") == 2
    assert statuses(workspace) == ["FINISHED"] * 2
    for folder in folders(workspace):
        assert folder.fact("delivered")
        assert history(workspace, folder.run_id) == history(reference, other.run_id)
    assert not (home / "runs" / ("0" * 32)).exists()


def test_a_run_whose_creation_was_not_answered_is_found_again_and_a_late_double_is_deleted(
    workspace: Path, proxy: SlowProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = workspace / "wsl-runs"
    tracker = Tracker(proxy.uri, "wsl-digits", home)
    folder = RunFolder.new(home)
    folder.note(name="one", params={"seed": 0}, started=1, status=RUNNING, experiment="wsl-digits", store=tracker.label)
    proxy.delay = 3.0
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    tracked = TrackedRun(tracker, folder)
    tracked.begin(offline_allowed=True)
    assert folder.is_offline
    proxy.delay = 0.0
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # from here on the server is as slow as the machine is busy
    until(lambda: len(statuses(workspace)) == 1)  # the server did what it was asked
    folder.append(EpochRecord(epoch=1, metrics={"train/risk": 0.5}, seconds=0.1))
    tags = {LOCAL_ID: folder.run_id}
    tracker.client.create_run(tracker.experiment_id, tags=tags, start_time=2)  # as if an earlier request came late
    folder.leave(FINISHED)
    run_folders.deliver(run_folders.outbox_of(tracker), folder)
    assert statuses(workspace) == ["FINISHED"]
    assert history(workspace, folder.run_id)["train/risk"] == [(1, 0.5)]
