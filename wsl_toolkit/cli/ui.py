"""`wsl ui`: browse runs in MLflow's own interface, started light."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import click

from wsl_toolkit.cli.common import tracking_uri_option
from wsl_toolkit.errors import ConfigError, TrackingError

START_SECONDS = 90
SETTINGS = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # the job runner starts a dozen processes that we do not need
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONSAFEPATH": "1",  # in the processes that the server starts, too: no code from the working directory
    "PYTHONUNBUFFERED": "1",
}


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 opens it to others."
)
@click.option(
    "--port", default=5000, show_default=True, type=click.IntRange(1, 65535), help="Port; the next free one if taken."
)
@tracking_uri_option
@click.option("--experiment", help="Open this experiment.  [default: the one with the newest run]")
@click.option("--open/--no-open", "open_browser", default=True, help="Open a browser window.")
def ui(host: str, port: int, tracking_uri: str | None, experiment: str | None, open_browser: bool) -> None:
    """Browse runs in the MLflow interface; prints the link that opens the runs table directly.

    It listens on this machine only. To show it to others, give --host 0.0.0.0, and mind that MLflow then lets anybody
    who reaches the port read, change and delete runs.
    """
    from wsl_toolkit.runs.tracking.runs_table import runs_page
    from wsl_toolkit.runs.tracking.store import absolute, choose_uri, redact

    uri = absolute(choose_uri(tracking_uri))
    _mark_dead_runs(uri)
    page = runs_page(uri, experiment)
    if uri.startswith(("http://", "https://")):
        click.echo(f"The tracking server is running already: {redact(uri).rstrip('/')}{page}")
        return
    port = free_port(host, port)
    address = f"http://{'localhost' if host in ('127.0.0.1', '0.0.0.0') else host}:{port}"
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--host", host]
    command += ["--port", str(port), "--workers", "1"]
    if host == "0.0.0.0":
        click.echo("note: listening on all addresses: anybody who reaches this port can change runs", err=True)
        command += ["--allowed-hosts", "*"]
    with _started(command, uri) as (server, complaints):
        own_address = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        _wait_until_healthy(server, complaints, own_address)
        click.echo(f"Runs: {address}{page}\nStop with Ctrl-C.")
        if open_browser and sys.stdout.isatty():
            webbrowser.open(f"{address}{page}")
        server.wait()


@contextmanager
def _started(command: list[str], uri: str) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Give a running server and what it complains of; it ends with us, be it by Ctrl-C or by SIGTERM."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)  # by default we would die at once and leave the server behind

    # A file, because nobody reads a pipe while the server runs, and a full one would stop it.
    with tempfile.TemporaryFile() as complaints, tempfile.TemporaryDirectory(prefix="wsl-ui-") as neutral:
        before = signal.signal(signal.SIGTERM, leave)
        server = subprocess.Popen(
            command,
            # Not as an argument: everybody on the machine can read those, and the address may hold a password.
            env={**os.environ, **SETTINGS, "MLFLOW_BACKEND_STORE_URI": uri},
            cwd=neutral,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
        )
        try:
            yield server, complaints
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
        finally:
            server.terminate()
            server.wait(timeout=20)
            signal.signal(signal.SIGTERM, before)


def _mark_dead_runs(uri: str) -> None:
    """Show no run as running whose process is gone."""
    from wsl_toolkit.runs.tracking import run_folders
    from wsl_toolkit.runs.tracking.store import HOME, Tracker

    dead = run_folders.sweep(HOME, lambda text: click.echo(f"note: {text}", err=True))
    if dead:
        run_folders.tell(Tracker(uri, dead[0].fact("experiment")), dead)


def free_port(host: str, wanted: int) -> int:
    """Return the wanted port, or the next free one."""
    for port in range(wanted, min(wanted + 50, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except socket.gaierror:
                raise ConfigError(f"--host {host!r} is not an address of this machine") from None
            except OSError:
                continue
            return port
    raise ConfigError(f"no port from {wanted} to {wanted + 49} is free on {host}: choose another with --port")


def _wait_until_healthy(server: subprocess.Popen[bytes], complaints: IO[bytes], address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip().splitlines()
            raise TrackingError(f"the MLflow server ended at once: {said[-1] if said else 'no message'}")
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TrackingError(f"the MLflow server did not answer within {START_SECONDS} seconds")
