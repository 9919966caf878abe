"""The embedded database: one SQLite file, made whole or not at all.

MLflow makes a fresh database in place, table by table, for seconds. A process that is killed meanwhile leaves a file
that no later MLflow can use, and two processes that make one together break it. So it is made in a temporary file,
under a lock, and renamed; a half-made one is recognised by having no experiment, and made anew.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wsl_toolkit.errors import TrackingError, one_line
from wsl_toolkit.runs.tracking.library import import_mlflow

PREFIX = "sqlite:///"
LOCK_SECONDS = 300.0
QUIET_SECONDS = 3.0
"""A half-made database that somebody wrote to more recently may still be in the making."""


def sqlite_uri(path: Path) -> str:
    """Return the URI of a database file; a `?` in its path would end it, and a `%` begins a quoted character."""
    whole = str(path.resolve())
    if "?" not in whole and "%" not in whole:
        return f"{PREFIX}{whole}"
    if _quoting_works():
        return PREFIX + whole.replace("%", "%25").replace("?", "%3F")
    if "?" in whole:
        raise TrackingError(
            f"the path {whole!r} cannot hold a database: it has a '?' (SQLAlchemy 2.1 is needed for that)"
        )
    return f"{PREFIX}{whole}"


def sqlite_path(uri: str) -> Path | None:
    """Return the file of an SQLite URI, or None if it is another kind of store."""
    place = uri.removeprefix(PREFIX).partition("?")[0]
    if not uri.startswith(PREFIX) or place == ":memory:":
        return None
    return Path(urllib.parse.unquote(place) if "%" in place and _quoting_works() else place)


def _quoting_works() -> bool:
    """Return whether SQLAlchemy takes a database's path as quoted, as it does from release 2.1 on."""
    import sqlalchemy

    return sqlalchemy.make_url(f"{PREFIX}%3F").database == "?"


def tidy(uri: str) -> None:
    """Remove the empty folders that MLflow makes for a quoted path as if it were a plain one."""
    path = sqlite_path(uri)
    made = Path(uri.removeprefix(PREFIX)).parent
    with contextlib.suppress(OSError):
        while path is not None and not path.is_relative_to(made):
            made.rmdir()
            made = made.parent


def is_whole(path: Path) -> bool:
    """Return whether MLflow finished making a database; one that cannot be looked at now gets the benefit of doubt."""
    if not path.exists():
        return False
    try:
        # Not read-only: what a killed process left of a transaction is rolled back first.
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=60)) as found:
            (version,) = found.execute("SELECT count(*) FROM alembic_version").fetchone()
            (experiments,) = found.execute("SELECT count(*) FROM experiments").fetchone()
    except sqlite3.OperationalError as error:
        return "no such table" not in str(error)
    except (
        sqlite3.DatabaseError,
        UnicodeDecodeError,
    ) as error:  # the latter where what is wrong cannot be put in words
        raise TrackingError(
            f"{path} is damaged ({one_line(error)}): restore it from a backup, or move it away, and the next run makes "
            "a new one"
        ) from None
    return bool(version and experiments)


def ensure(path: Path) -> None:
    """See to it that a database is there and whole; one process at a time makes it."""
    if is_whole(path):
        return
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock"), timeout=LOCK_SECONDS):
        while path.exists() and time.time() - _last_written(path) < QUIET_SECONDS and not is_whole(path):
            time.sleep(0.2)
        if not is_whole(path):
            _make(path)


def _make(path: Path) -> None:
    prefix = f".{path.name}.new-"
    for left in path.parent.glob(f"{prefix}*"):  # by a process that was killed: whoever lives has the lock
        left.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix)
    os.close(handle)
    try:
        _fill(Path(name))
        for side_file in _side_files(path):
            side_file.unlink(missing_ok=True)  # a journal of the half-made one would be played into the new one
        Path(name).chmod(0o644)
        os.replace(name, path)
    finally:
        for left in (Path(name), *_side_files(Path(name))):
            left.unlink(missing_ok=True)


def _fill(path: Path) -> None:
    """Let MLflow make its tables in an empty file, and flush it to disk."""
    import_mlflow()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    with _unsynchronised():
        store: Any = SqlAlchemyStore(sqlite_uri(path), "./mlruns")
        store.engine.dispose()
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode=WAL")  # halves the latency of many writers
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _unsynchronised() -> Iterator[None]:
    """Have databases that are opened now wait for no disk: hundreds of small changes of one that nobody uses yet."""
    from sqlalchemy import Engine, event

    def relax(connection: Any, record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", relax)
    try:
        yield
    finally:
        event.remove(Engine, "connect", relax)


def _side_files(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}-{kind}") for kind in ("journal", "wal", "shm")]


def _last_written(path: Path) -> float:
    return max(file.stat().st_mtime for file in (path, *_side_files(path)) if file.exists())
