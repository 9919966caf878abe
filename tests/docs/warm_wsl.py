"""A `wsl` that starts at once: one process imports torch and MLflow, and each command runs in a fork of it.

Importing takes longer than most commands of the documentation. The command itself is the real one, with its own
process, directory, environment and standard streams; `install` writes the `wsl` that hands them over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CLIENT = """#!{python} -SEs
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
asked = json.dumps(dict(argv=sys.argv[1:], cwd=os.getcwd(), env=dict(os.environ))).encode()
socket.send_fds(line, [len(asked).to_bytes(8, "big")], [0, 1, 2])
line.sendall(asked)
process = int(line.recv(16))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: os.kill(process, number))
answer = line.recv(16)
sys.exit(int(answer) if answer else 70)
"""


@contextlib.contextmanager
def warm(folder: Path) -> Iterator[Path]:
    """Start the process; give a directory whose `wsl` uses it."""
    address = str(folder / "line")
    log = folder / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, __file__, address],
            stdout=subprocess.PIPE,
            stderr=out,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n", log.read_text()
        binaries = folder / "bin"
        binaries.mkdir()
        (binaries / "wsl").write_text(CLIENT.format(python=sys.executable, address=address))
        (binaries / "wsl").chmod(0o755)
        yield binaries
    finally:
        server.terminate()
        server.wait(timeout=20)


def serve(address: str) -> None:
    """Answer for ever: each request in a fork that waits for a fork of its own."""
    import matplotlib.figure  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import torch  # noqa: F401

    from wsl_toolkit.cli import main
    from wsl_toolkit.runs.tracking import store as tracking

    tracking.import_mlflow()
    door = socket.socket(socket.AF_UNIX)
    door.bind(address)
    door.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that answer
    print("ready", flush=True)
    while True:
        line, _ = door.accept()
        if os.fork():
            line.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        door.close()
        size, streams, _, _ = socket.recv_fds(line, 8, 3)
        asked = json.loads(_read(line, int.from_bytes(size, "big")))
        child = os.fork()
        if not child:
            line.close()
            _become(asked, streams)
            _call(main, asked["argv"])
        line.sendall(str(child).encode())
        _, status = os.waitpid(child, 0)
        line.sendall(str(os.waitstatus_to_exitcode(status) & 255).encode())
        os._exit(0)


def _read(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += line.recv(size - len(data))
    return data


def _become(asked: dict, streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  # theirs from now on
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["wsl", *asked["argv"]]


def _call(main, argv: list[str]) -> None:
    try:
        main(argv, prog_name="wsl")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
