"""Real processes for fault tests, quick to start: forked from a server that has imported the heavy packages once."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.conftest import SMALL_PICTURES
from tests.warm_python import Program
from wsl_toolkit.runs.folder import RunFolder, all_folders
from wsl_toolkit.training.checkpoints import read

CALL = """
import base64, json, pickle, sys
sys.path[:] = json.loads(sys.argv[1])  # where modules of tests are found
call, arguments = pickle.loads(base64.b64decode(sys.argv[2]))
call(*arguments)
"""


def _with_small_pictures(call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    from wsl_toolkit.system.figure_style import STYLE

    STYLE.update(SMALL_PICTURES)
    call(*arguments)


def _wsl(arguments: list[str]) -> None:
    from wsl_toolkit.cli import main

    main(arguments)


class Started:
    """A process of ours and what it said."""

    def __init__(
        self, cwd: Path, call: Callable[..., Any], *arguments: Any, env: Mapping[str, str] | None = None
    ) -> None:
        self.cwd = cwd
        self.output = cwd.parent / f".output-{time.monotonic_ns()}"  # not where a disk may be full
        given = base64.b64encode(pickle.dumps((_with_small_pictures, (call, arguments)))).decode()
        inherited = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
        with open(os.devnull, "rb") as nothing, self.output.open("ab") as output:
            streams = [nothing.fileno(), output.fileno(), output.fileno()]
            environment = {"OMP_NUM_THREADS": "1", **inherited, **(env or {})}
            self.process = Program(["-c", CALL, json.dumps(sys.path), given], cwd, environment, streams)

    def wait(self, seconds: float = 500) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still at work after {seconds} s: {self.said}")
        assert self.process.exitcode is not None
        return self.process.exitcode

    def send(self, number: int) -> None:
        """Send a signal, if it still lives."""
        if self.process.is_alive():
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill it without warning."""
        self.send(signal.SIGKILL)
        self.process.join()

    @property
    def said(self) -> str:
        """All that it wrote."""
        return self.output.read_text() if self.output.exists() else ""


def start_wsl(cwd: Path, *arguments: str, **env: str) -> Started:
    """Start a `wsl` command in a directory."""
    return Started(cwd, _wsl, list(arguments), env=env)


def wsl(cwd: Path, *arguments: str, code: int = 0, **env: str) -> str:
    """Run a `wsl` command to its end; return what it said."""
    started = start_wsl(cwd, *arguments, **env)
    found = started.wait()
    assert found == code, f"wsl {' '.join(arguments)} ended with {found}, not {code}: {started.said}"
    assert "Traceback" not in started.said, started.said
    return started.said


def wsl_here(cwd: Path, *arguments: str, code: int = 0, **env: str) -> str:
    """The same in this process, for commands that nothing happens to."""
    from click.testing import CliRunner

    from wsl_toolkit.cli import main

    with contextlib.chdir(cwd):
        done = CliRunner().invoke(main, arguments, env={"MLFLOW_TRACKING_URI": None, **env})
    ended = f"wsl {' '.join(arguments)} ended with {done.exit_code}, not {code}: {done.output}\n{done.exception!r}"
    assert done.exit_code == code, ended
    assert "Traceback" not in done.output, done.output
    return done.output


def folders(cwd: Path) -> list[RunFolder]:
    """The run folders of a working directory, oldest first."""
    return sorted(all_folders(cwd / "wsl-runs"), key=lambda folder: folder.fact("started"))


def final_state(folder: RunFolder) -> dict[str, Any]:
    """The last checkpoint of a run that is complete: there must be just one."""
    (path,) = (folder.path / "checkpoints").glob("*.pt")
    return read(path)


def history(cwd: Path, run_id: str) -> dict[str, list[tuple[int, float]]]:
    """Every metric value of a run in the store, read from the database itself; times of epochs are no result."""
    with sqlite3.connect(cwd / "wsl-runs" / "mlflow.db", timeout=60) as database:
        rows = database.execute(
            "select key, step, value, is_nan from metrics where run_uuid = ? order by key, step", (run_id,)
        ).fetchall()
    found: dict[str, list[tuple[int, float]]] = {}
    for key, step, value, is_nan in rows:
        found.setdefault(key, []).append(
            (step, 0.0 if key == "time/epoch_seconds" else float("nan") if is_nan else value)
        )
    return found


def status(cwd: Path, run_id: str) -> str:
    """A run's status in the store."""
    with sqlite3.connect(cwd / "wsl-runs" / "mlflow.db", timeout=60) as database:
        return str(database.execute("select status from runs where run_uuid = ?", (run_id,)).fetchone()[0])


def statuses(cwd: Path) -> list[str]:
    """The status of every run in the store that was not deleted."""
    with sqlite3.connect(cwd / "wsl-runs" / "mlflow.db", timeout=60) as database:
        query = "select status from runs where lifecycle_stage = 'active' order by start_time"
        return [row[0] for row in database.execute(query)]
