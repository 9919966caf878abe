"""`wsl ui` without a browser: how it ends, and what it says if its server does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from wsl_toolkit.cli import ui
from wsl_toolkit.errors import TrackingError


@pytest.mark.system
@pytest.mark.usefixtures("fresh_database")
def test_a_terminated_interface_takes_its_server_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "wsl_toolkit.cli", "ui", "--no-open", "--port", "5340"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as interface:
        assert interface.stdout is not None
        found = re.search(r"http://localhost:\d+", interface.stdout.readline())
        assert found
        health = f"{found[0].replace('localhost', '127.0.0.1')}/health"
        with urllib.request.urlopen(health, timeout=10) as answer:
            assert answer.status == 200
        interface.send_signal(signal.SIGTERM)
        assert interface.wait(timeout=30) == 143
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(health, timeout=10)


def test_a_server_that_ends_at_once_is_quoted() -> None:
    before = signal.getsignal(signal.SIGTERM)
    program = "import sys; print('x' * 200_000, file=sys.stderr); sys.exit('the disk is on fire')"
    with ui._started([sys.executable, "-c", program], "sqlite:///unused.db") as (server, complaints):
        server.wait(timeout=30)
        with pytest.raises(TrackingError, match=r"ended at once: the disk is on fire$"):
            ui._wait_until_healthy(server, complaints, "http://127.0.0.1:9")
    assert signal.getsignal(signal.SIGTERM) is before
