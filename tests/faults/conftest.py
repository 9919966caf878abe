"""A database to start from: making a fresh one costs seconds, copying one does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_tools import wsl_here


@pytest.fixture(scope="module", autouse=True)
def _small_pictures(small_pictures: None) -> None:
    """Nothing here looks at a picture."""


@pytest.fixture(scope="session")
def first_home(tmp_path_factory: pytest.TempPathFactory, fresh_database_in: Callable[[Path], None]) -> Path:
    """A working directory with a database that has no run."""
    from wsl_toolkit.runs.tracking.store import Tracker, default_uri

    home = tmp_path_factory.mktemp("first") / "wsl-runs"
    fresh_database_in(home.parent)
    Tracker(default_uri(home), "wsl-digits", home)
    return home


@pytest.fixture
def workspace(first_home: Path, tmp_path: Path) -> Path:
    """A working directory with a database of its own."""
    import sqlite3

    home = tmp_path / "wsl-runs"
    home.mkdir()
    with sqlite3.connect(first_home / "mlflow.db") as source, sqlite3.connect(home / "mlflow.db") as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode=WAL")
        # An experiment knows where its artifacts lie.
        target.execute("update experiments set artifact_location = ?", ((home / "artifacts").as_uri(),))
    return tmp_path


@pytest.fixture(scope="session")
def run_alone(first_home: Path, shared_by_workers: Callable[..., Path]) -> Callable[..., Path]:
    """Return a working directory, made once for all processes, in which a run was never interrupted."""

    def once(name: str, *arguments: str) -> Path:
        def make(path: Path) -> None:
            shutil.copytree(first_home, path / "wsl-runs")
            wsl_here(path, *arguments)

        return shared_by_workers(name, make)

    return once


@pytest.fixture(scope="session")
def reference(run_alone: Callable[..., Path]) -> Path:
    """A working directory in which the run of `ARGUMENTS` was never interrupted."""
    from test_kills import ARGUMENTS

    return run_alone("reference", *ARGUMENTS)


@pytest.fixture(scope="session")
def short_reference(run_alone: Callable[..., Path]) -> Path:
    """The same with six epochs, for what is not about the moment of an interruption."""
    from test_kills import ARGUMENTS

    return run_alone("short-reference", *ARGUMENTS, "--epochs", "6")
