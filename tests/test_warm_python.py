"""Programs forked from the warm Python are processes like others, with arguments, streams and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until
from tests.warm_python import Program


def run(warm_python: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([warm_python, *arguments], capture_output=True, text=True, timeout=60, check=False, **options)


def test_a_program_has_its_own_arguments_directory_environment_and_streams(tmp_path: Path, warm_python: Path) -> None:
    code = (
        "import os, sys; print(sys.argv[1], os.getcwd(), os.environ['OWN']); print(sys.stdin.read(), file=sys.stderr)"
    )
    done = run(warm_python, "-u", "-c", code, "one", cwd=tmp_path, env={**os.environ, "OWN": "value"}, input="read")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"one {tmp_path} value\n", "read\n")


@pytest.mark.parametrize(
    ("code", "exit_code"), [("import sys; sys.exit(7)", 7), ("1 / 0", 1), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_its_exit_code_is_what_a_shell_would_see(code: str, exit_code: int, warm_python: Path) -> None:
    done = run(warm_python, "-c", code)
    assert done.returncode == exit_code
    assert ("ZeroDivisionError" in done.stderr) == (exit_code == 1)


def test_a_program_of_a_test_can_be_asked_after_and_killed(tmp_path: Path) -> None:
    with open(os.devnull, "r+b") as nothing:
        streams = [nothing.fileno()] * 3
        code = "import pathlib, time; pathlib.Path('begun').touch(); time.sleep(600)"
        program = Program(["-c", code], tmp_path, os.environ, streams)
        short = Program(["-c", "pass"], tmp_path, os.environ, streams)
    until((tmp_path / "begun").exists)
    assert program.is_alive()
    program.join(0.01)
    assert program.exitcode is None
    program.kill()
    program.join(60)
    assert (program.exitcode, program.is_alive()) == (-signal.SIGKILL, False)
    short.join(60)
    assert short.exitcode == 0


def test_torch_is_there_from_the_start_and_interpreters_stay_what_they_are(warm_python: Path) -> None:
    done = run(warm_python, "-c", "import sys; print('torch' in sys.modules, sys.executable)")
    assert done.stdout == f"True {sys.executable}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="where forks are not sound, processes that test are no forks")
def test_processes_that_run_tests_side_by_side_are_forks_that_use_one_server(tmp_path: Path) -> None:
    test = "import os, sys\ndef test(): print(os.environ['PYTEST_WARM_PYTHON'], *sys.orig_argv); assert 0\n"
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(test)
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist=loadfile", tmp_path]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(os.environ["PYTEST_WARM_PYTHON"])]
    assert len(lines) == 2, done.stdout + done.stderr
    assert all("warm_python.py" in line for line in lines)
