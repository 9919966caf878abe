"""A Python that starts at once: one process imports torch and MLflow, and each program runs in a fork of it.

Importing them takes longer than most programs that the tests start. A program still has a process, a directory, an
environment and standard streams of its own; `start` writes a `python` and a `wsl` that hand them over. The processes
that run the tests are such programs themselves, and so are those of `tests/faults`. Tests of what is imported when, and
of the first seconds of a program, start the interpreter itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = "PYTEST_WARM_PYTHON"
"""The environment variable that tells all processes of a session where the one server's folder is."""

CLIENT = """#!{python} -SEs
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
argv = [*{before!r}, *sys.argv[1:]]
asked = json.dumps(dict(argv=argv, cwd=os.getcwd(), env=dict(os.environ))).encode()
streams = []
for number in range(3):
    try:
        streams.append(os.dup(number))
    except OSError:  # it is closed, as theirs shall be
        streams.append(None)
size = len(asked).to_bytes(8, "big") + bytes(stream is not None for stream in streams)
socket.send_fds(line, [size], [stream for stream in streams if stream is not None])
line.sendall(asked)
process = int(line.recv(16, socket.MSG_WAITALL))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(process, number))
answer = line.recv(16, socket.MSG_WAITALL)
code = int(answer) if answer else 70
sys.exit(code if code >= 0 else 128 - code)
"""


def folder() -> Path:
    """The folder of the server that this session shares: `python` and `bin/wsl`. Whoever asks first starts it."""
    if FOLDER not in os.environ:
        made = Path(tempfile.mkdtemp(prefix="wsl-warm-"))
        owner = os.getpid()
        start(made, owner)
        os.environ[FOLDER] = str(made)
        # Forks of this process run what it registered, too.
        atexit.register(lambda: os.getpid() == owner and shutil.rmtree(made, ignore_errors=True))
    return Path(os.environ[FOLDER])


class Program:
    """A program in a fork of the server, with the methods of `multiprocessing.Process`."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Sequence[int]) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(str(folder() / "line"))
        asked = json.dumps({"argv": list(argv), "cwd": str(cwd), "env": dict(env)}).encode()
        socket.send_fds(self._line, [len(asked).to_bytes(8, "big") + bytes([1, 1, 1])], streams)
        self._line.sendall(asked)
        self._code: int | None = None

    @functools.cached_property
    def pid(self) -> int:
        """Its number. Only who asks waits for it: several programs can begin at once."""
        return int(self._line.recv(16, socket.MSG_WAITALL))

    @property
    def exitcode(self) -> int | None:
        """What it ended with, negative for a signal; None while it lives."""
        self.join(0)
        return self._code

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self, seconds: float | None = None) -> None:
        if self._code is None and self.pid and select.select([self._line], [], [], seconds)[0]:
            self._code = int(self._line.recv(16, socket.MSG_WAITALL) or -signal.SIGKILL)
            self._line.close()

    def kill(self) -> None:
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)


def start(folder: Path, owner: int) -> None:
    """Start the process, which ends when its owner has; write `python` and `bin/wsl`, which use it, into a folder."""
    address = str(folder / "line")
    with (folder / "log").open("wb") as log:
        command = [sys.executable, __file__, address, str(owner)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, check=False)
    assert done.returncode == 0, (folder / "log").read_text()
    (folder / "bin").mkdir()
    for path, before in ((folder / "python", []), (folder / "bin" / "wsl", ["-P", "-m", "wsl_toolkit.cli"])):
        path.write_text(CLIENT.format(python=sys.executable, address=address, before=before))
        path.chmod(0o755)


def serve(address: str, owner: int) -> None:
    """Import what is slow, then answer while the owner lives: each request in a fork that waits for a fork of its own.

    Whoever started this waits only until it listens.
    """
    runpy.run_path(str(Path(__file__).with_name("warm_modules.py")))
    from wsl_toolkit.plugins.loading import load_plugins

    load_plugins.cache_clear()  # a program may be started to find others
    door = socket.socket(socket.AF_UNIX)
    door.bind(address)
    door.listen()
    if os.fork():
        os._exit(0)
    gc.freeze()
    door.settimeout(1)
    while _lives(owner):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        try:
            line, _ = door.accept()
        except TimeoutError:
            continue
        if os.fork():
            line.close()
            continue
        door.close()
        _answer(line)
    print(f"{sum(os.times()[:4]):.1f} s of processor time, all programs included", flush=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _answer(line: socket.socket) -> None:
    line.settimeout(None)
    header, streams, _, _ = socket.recv_fds(line, 11, 3)
    asked = json.loads(_read(line, int.from_bytes(header[:8], "big")))
    child = os.fork()
    if not child:
        line.close()
        _become(asked, dict(zip((number for number in range(3) if header[8 + number]), streams, strict=True)))
        _run(asked["argv"])
    for stream in streams:  # so that a pipe ends when the program has
        os.close(stream)
    for number in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    line.sendall(b"%16d" % child)
    _, status = os.waitpid(child, 0)
    line.sendall(b"%16d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _read(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += line.recv(size - len(data))
    return data


def _become(asked: dict, streams: dict[int, int]) -> None:
    for number in range(3):
        if number in streams:
            os.dup2(streams[number], number)
            os.close(streams[number])
        else:
            os.close(number)
    theirs = {number: open(number, "r" if number == 0 else "w") if number in streams else None for number in range(3)}  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = (theirs[number] for number in range(3))
    if sys.stderr is not None:
        sys.stderr.reconfigure(line_buffering=True)
    os.chdir(asked["cwd"])
    added = [entry for entry in asked["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = [entry for entry in map(os.path.abspath, added) if entry not in sys.path]
    importlib.invalidate_caches()
    os.environ.clear()
    os.environ.update(asked["env"])


def _run(argv: list[str]) -> None:
    """Do what `python` does with its arguments, and end."""
    code = 1
    try:
        _interpret(argv)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _interpret(argv: list[str]) -> None:
    options = [option for option in argv[:2] if option in ("-P", "-u")]
    argv, safe = argv[len(options) :], "-P" in options
    if argv[0] in ("-c", "-m"):
        sys.argv = [argv[0], *argv[2:]]
        if not safe:
            sys.path.insert(0, "" if argv[0] == "-c" else os.getcwd())
        if argv[0] == "-m":
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = argv
        sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    del sys.path[0]  # the folder of the tests, which no program should find
    serve(sys.argv[1], int(sys.argv[2]))
