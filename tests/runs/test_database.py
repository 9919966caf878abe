"""The embedded database is made without waiting for the disk, and used with."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, text

from wsl_toolkit.runs.tracking import database


def test_only_the_making_of_a_database_does_without_synchronisation(tmp_path: Path, monkeypatch) -> None:
    levels = []

    def level(path: Path) -> int:
        with create_engine(database.sqlite_uri(path)).connect() as connection:
            return connection.execute(text("PRAGMA synchronous")).scalar_one()

    fill = database._unsynchronised

    def watched():
        context = fill()
        with context:
            levels.append(level(tmp_path / "other.db"))
        return fill()

    monkeypatch.setattr(database, "_unsynchronised", watched)
    database.ensure(tmp_path / "mlflow.db")
    assert database.is_whole(tmp_path / "mlflow.db")
    assert levels == [0]
    assert level(tmp_path / "mlflow.db") == level(tmp_path / "other.db") == 2
