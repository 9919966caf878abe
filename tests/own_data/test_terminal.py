"""On a terminal (a real one), commands on a user's data show how far they are."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.own_data.conftest import ZOO

FIT = ("--epochs", "3", "--estimator", "cc", "--lr", "0.1", "--weight-decay", "0")


def shown_on_a_terminal(python: Path, home: Path, *arguments: object) -> str:
    """Run `wsl` in a terminal of its own; return what appeared there on standard error."""
    ours, theirs = pty.openpty()
    command = [str(python), "-P", "-m", "wsl_toolkit.cli", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is gone when the process is
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    process.communicate(timeout=60)
    assert process.returncode == 0, shown.decode()
    return shown.decode()


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        (("audit", "--json"), ["reading", "counting", "testing the sets", "0/5", "2/5"]),
        (("fit", "--out", "m", "--no-track", "--json", *FIT), ["reading", "trial 1/1", "3/3"]),
    ],
)
def test_progress_is_a_bar_on_a_terminal(
    wsl, zoo, warm_python: Path, command: tuple[str, ...], texts: list[str]
) -> None:
    shown = shown_on_a_terminal(warm_python, wsl.home, command[0], zoo, *ZOO, *command[1:])
    assert "━" in shown, "a bar"
    assert [text for text in texts if text not in shown] == []
