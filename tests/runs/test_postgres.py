"""A shared MLflow server on PostgreSQL, started by the command that the documentation gives."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from postgres_server import Postgres

from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(600), pytest.mark.xdist_group("database")]

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
STUDY: dict[str, Any] = {
    "name": "shared",
    "trials": 2,
    "training": {"epochs": 3, "batch_size": 128, "validation": 0.1},
    "search": {"epochs": 2, "space": {"lr": [0.01, 0.1], "weight_decay": [1e-4]}},
    "settings": [{"dataset": "digits", "generator": {"name": "mcl-skewed", "alpha": 0.8}, "backbone": "linear"}],
    "methods": [{"estimator": "ppl", "label": "PPL"}, {"estimator": "cc", "label": "CC"}],
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    made = Postgres(free_port())
    try:
        yield made
    finally:
        made.stop()


def documented_command() -> str:
    found = re.search(r"```bash\n(MLFLOW_BACKEND_STORE_URI=.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert found, "the page has no such command"
    return found[1]


@pytest.fixture(scope="module")
def server(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The documented command, with this machine's addresses in the place of the examples."""
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    text = documented_command()
    changes = {
        "postgresql+psycopg2://wsl:PASSWORD@db.example/wsl": database.uri,
        "/srv/wsl/artifacts": str(folder / "artifacts"),
        "--host 0.0.0.0": "--host 127.0.0.1",
        "--port 5000": f"--port {port}",
        "tracking.example:5000": f"127.0.0.1:{port}",
    }
    for example, real in changes.items():
        assert text.count(example) == 1, f"{example} is not in the documented command"
        text = text.replace(example, real)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", text], cwd=folder, env={**os.environ, "PATH": path}, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    try:
        until(answers, "the server does not answer")
        yield address, folder
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def wsl(home: Path, *arguments: str) -> subprocess.Popen[str]:
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "wsl_toolkit.cli", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=home, env=environment, stderr=subprocess.PIPE, text=True)


def test_a_study_and_a_run_of_two_people_meet_in_one_database(
    database: Postgres, server: tuple[str, Path], tmp_path: Path
) -> None:
    address, folder = server
    (tmp_path / "study.toml").write_text(tomli_w.dumps(STUDY))
    where = ("--tracking-uri", address)
    people = [
        wsl(tmp_path / "ann", "study", "run", str(tmp_path / "study.toml"), "--jobs", "1", *where),
        wsl(tmp_path / "bob", "run", "--epochs", "5", "--trials", "2", *where),
    ]
    for person in people:
        _, said = person.communicate(timeout=400)
        assert person.returncode == 0, said
        assert "did not take" not in said
    statuses = database.query("select status, count(*) from runs group by status")
    assert statuses == [("FINISHED", (1 + 2 + 8) + (1 + 2))], "a study, its cells and jobs; a parent and its trials"
    (steps,) = database.query(
        "select array_agg(m.step order by m.step) from metrics m join params p on m.run_uuid = p.run_uuid "
        "where m.key = 'train/risk' and p.key = 'trials' and p.value = '1' and m.run_uuid in "
        "(select run_uuid from tags where key = 'mlflow.parentRunId') group by m.run_uuid having count(*) = 5 limit 1"
    )
    assert steps[0] == [1, 2, 3, 4, 5]
    assert list((folder / "artifacts").rglob("report.html")), "files go through the server to its own disk"
    assert not list(tmp_path.rglob("mlflow.db")), "nobody wrote to a database of his own"
