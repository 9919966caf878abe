"""The embedded database is made without waiting for the disk, and used with."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, text

from wsl_toolkit.runs.tracking import database

OFF, FULL = 0, 2


def synchronisation(path: Path) -> int:
    with create_engine(database.sqlite_uri(path)).connect() as connection:
        return connection.execute(text("PRAGMA synchronous")).scalar_one()


def test_only_the_making_of_a_database_does_without_synchronisation(
    tmp_path: Path, databases_made_by_mlflow: None
) -> None:
    with database._unsynchronised():
        assert synchronisation(tmp_path / "other.db") == OFF
    database.ensure(tmp_path / "mlflow.db")
    assert database.is_whole(tmp_path / "mlflow.db")
    assert synchronisation(tmp_path / "mlflow.db") == synchronisation(tmp_path / "other.db") == FULL
