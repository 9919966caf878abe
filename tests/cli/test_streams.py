"""Output that cannot be written, and Ctrl-C at any moment: real processes, real pipes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from wsl_toolkit.cli import main

RUN = "run --backbone linear --epochs 3 --estimator ppl"
WSL = f"{sys.executable} -P -m wsl_toolkit.cli"
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def runs(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "wsl-runs" / "mlflow.db") as database:
        return [status for (status,) in database.execute("select status from runs")]


def test_output_that_fails_never_stops_training(
    tmp_path: Path, fresh_database_in: Callable[[Path], None], warm_python: Path
) -> None:
    fresh_database_in(tmp_path)
    shell(tmp_path, f"{warm_python} -P -m wsl_toolkit.cli {RUN} --generator mcl-skewed 2>&1 | head -1")
    assert runs(tmp_path) == ["FINISHED"]


@full
@pytest.mark.system
def test_output_that_is_full_or_closed_never_stops_training(
    tmp_path: Path, fresh_database_in: Callable[[Path], None], warm_python: Path
) -> None:
    fresh_database_in(tmp_path)
    done = shell(tmp_path, f"{warm_python} -P -m wsl_toolkit.cli {RUN} 2>/dev/full >&- <&-")
    assert done.returncode == 0, done
    assert runs(tmp_path) == ["FINISHED"]


@full
def test_a_full_standard_output_is_one_line_and_no_defect(tmp_path: Path) -> None:
    done = shell(tmp_path, f"{WSL} list > /dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    assert shell(tmp_path, f"{WSL} list >&-").returncode == 0
    assert shell(tmp_path, f"{WSL} list nonsense 2>&-").returncode == 2


@pytest.mark.parametrize("seconds", [0.7, 2.5])
def test_ctrl_c_in_the_first_seconds_ends_with_130(seconds: float, tmp_path: Path) -> None:
    command = [*WSL.split(), *RUN.replace("--epochs 3", "--epochs 100000").split()]
    started = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(seconds)
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=120)
    assert started.returncode == 130, said
    assert "Aborted" not in said
    assert "Traceback" not in said


HANDLED_BUT_REMEMBERED = """
import ctypes
import sys
from wsl_toolkit.cli import __main__, main

def interrupted(context):
    run = ctypes.pythonapi.PyRun_String  # as the initialisation of a C extension does
    run.restype, run.argtypes = ctypes.py_object, [ctypes.c_char_p, ctypes.c_int, ctypes.py_object, ctypes.py_object]
    run(b"raise KeyboardInterrupt", 257, {}, {})

main.get_command(None, "list").invoke = interrupted
main.get_command = lambda context, name, command=main.get_command(None, "list"): command
sys.argv = ["wsl", "list"]
__main__.wsl()
"""


def test_ctrl_c_while_a_c_extension_runs_python_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "interrupted_wsl.py").write_text(HANDLED_BUT_REMEMBERED)
    command = [sys.executable, "-m", "interrupted_wsl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "Error: stopped by Ctrl-C\n")


SWALLOWED = """
import os
import signal
import sys
from wsl_toolkit.cli import __main__, main
from wsl_toolkit.errors import TrackingError

def interrupted(context):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
    except KeyboardInterrupt as error:
        error.__traceback__ = None
    raise TrackingError("the store cannot be used: a module is half imported")

main.get_command(None, "list").invoke = interrupted
main.get_command = lambda context, name, command=main.get_command(None, "list"): command
sys.argv = ["wsl", "list"]
__main__.wsl()
"""


def test_ctrl_c_that_an_import_swallowed_is_still_what_ended_the_command(tmp_path: Path) -> None:
    (tmp_path / "interrupted_wsl.py").write_text(SWALLOWED)
    command = [sys.executable, "-m", "interrupted_wsl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "Error: stopped by Ctrl-C\n")


@pytest.mark.parametrize(("arguments", "code"), [("list --json", 0), ("list nonsense", 2)])
def test_the_program_ends_at_once_but_not_before_all_is_written_and_done(arguments: str, code: int) -> None:
    program = (
        "import atexit, sys\n"
        "from wsl_toolkit.cli import __main__\n"
        f"sys.argv = ['wsl', *{arguments.split()!r}]\n"
        "try:\n    __main__.wsl()\nfinally:\n    atexit.register(print, 'last words')\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    *said, last = done.stdout.splitlines()
    assert (done.returncode, last) == (code, "last words")
    if code == 0:
        assert "ppl" in json.loads("\n".join(said))["estimator"]


@pytest.mark.parametrize("arguments", [["run", "--resume"], ["run", "--config"], ["study", "run"], ["predict", "m"]])
def test_a_name_that_is_too_long_is_the_users_mistake(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [*arguments, "x" * 5000])
    assert done.exit_code == 2, done.output
    assert len(done.output) < 1000


@pytest.mark.system
def test_the_interface_opens_on_a_locked_store_and_explains_one_that_cannot_be_read(tmp_path: Path) -> None:
    from wsl_toolkit.errors import TrackingError
    from wsl_toolkit.runs.tracking.runs_table import runs_page
    from wsl_toolkit.runs.tracking.store import Tracker, default_uri

    uri = default_uri(tmp_path)
    Tracker(uri, "wsl-digits", tmp_path)
    with sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None) as lock:
        lock.execute("BEGIN IMMEDIATE")
        assert runs_page(uri, "wsl-digits").endswith("workflowType=machine_learning")
        lock.execute("ROLLBACK")
    (tmp_path / "mlflow.db").write_bytes(b"x" * 5000)
    with pytest.raises(TrackingError, match="is damaged"):
        runs_page(uri, None)
