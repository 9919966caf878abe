"""MLflow's stores: which one, whether it answers, its experiments and pages.

Our own record on disk is the source of truth (`runs.folder`); a store gets it through an `Outbox`.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import sqlite3
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from wsl_toolkit.errors import TrackingError, one_line
from wsl_toolkit.runs.tracking import database
from wsl_toolkit.runs.tracking.background import Request, patience
from wsl_toolkit.runs.tracking.library import import_mlflow
from wsl_toolkit.system.redaction import redact as redact

T = TypeVar("T")

HOME = Path("wsl-runs")
"""The one folder on disk, in the working directory: database, artifacts, records."""

REACH_SECONDS = 5.0
BUSY_SECONDS = 60.0
"""For so long a store that is locked by other writers is asked again."""

BATCH = 1000
CANDIDATES_FILE = "candidates.safetensors"


def default_uri(home: Path = HOME) -> str:
    """Return the URI of the embedded database."""
    return database.sqlite_uri(home / "mlflow.db")


def choose_uri(option: str | None, home: Path = HOME) -> str:
    """Return the store to use: the flag, else MLFLOW_TRACKING_URI, else the embedded database."""
    return option or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(home)


def absolute(uri: str) -> str:
    """Return a store's URI as it is understood in any working directory."""
    path = database.sqlite_path(uri)
    return uri if path is None or path.is_absolute() else database.sqlite_uri(path)


def store_label(uri: str, home: Path) -> str | None:
    """Return a store as run folders remember it; see `Tracker.label`."""
    return None if uri == default_uri(home) else redact(uri)


@contextlib.contextmanager
def speaking_to(uri: str) -> Iterator[Any]:
    """Point MLflow's module-level functions at a store for a while.

    MLflow keeps that address in the environment, where it would decide the store of every later run of this process
    and of its children.
    """
    mlflow = import_mlflow()
    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    try:
        yield mlflow
    finally:
        mlflow.set_tracking_uri(before)


@attrs.frozen(kw_only=True)
class RunFacts:
    """What is known of a run when it starts."""

    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    description: str
    parent: str | None = None
    codes: Sequence[Mapping[str, str]] = ()
    """The code that the run is made by; several where it went on under other code, the last being the present one."""


class Tracker:
    """A tracking store and one experiment in it."""

    def __init__(self, uri: str, experiment: str, home: Path = HOME) -> None:
        self.uri = uri
        self.home = home
        self.backoff = Backoff()
        try:
            if self._is_server:
                Request(lambda: self._open(experiment)).outcome(patience())
            else:
                self._open(experiment)
        except TrackingError:
            raise
        except Exception as error:
            raise TrackingError(f"the tracking store {redact(uri)} cannot be used: {redact(one_line(error))}") from None
        self.experiment = experiment

    def _open(self, experiment: str) -> None:
        self.check_answers()
        _ensure_database(self.uri)
        self.client = import_mlflow().MlflowClient(tracking_uri=self.uri)
        self.experiment_id = retry_while_locked(lambda: self._experiment(experiment))
        database.tidy(self.uri)

    @property
    def _is_server(self) -> bool:
        return self.uri.startswith(("http://", "https://"))

    def check_answers(self) -> None:
        """Fail soon if a server does not answer."""
        if self._is_server:
            _reach(self.uri)

    @property
    def label(self) -> str | None:
        """The store as run folders remember it: no secrets, and None for the embedded one, which moves with them."""
        return store_label(self.uri, self.home)

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            # The location is fixed when the experiment is made, so it must not depend on who makes it from where.
            artifacts = (self.home / "artifacts").resolve().as_uri() if self.uri.startswith("sqlite:") else None
            kind = {"mlflow.experimentKind": "custom_model_development"}
            try:
                return str(self.client.create_experiment(name, artifact_location=artifacts, tags=kind))
            except Exception:
                found = self.client.get_experiment_by_name(name)  # another process made it at the same time
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            raise TrackingError(
                f"experiment {name!r} was deleted in {redact(self.uri)}: restore it or use --experiment"
            )
        return str(found.experiment_id)


class Backoff:
    """When to send to a store again: not soon after a failure, so that a lost store costs training next to nothing."""

    FIRST_WAIT, LONGEST_WAIT = 10.0, 300.0

    def __init__(self) -> None:
        self._wait = self.FIRST_WAIT
        self._dead_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether an attempt is worth its time."""
        return time.monotonic() >= self._dead_until

    def worked(self) -> None:
        """The store answered."""
        self._wait, self._dead_until = self.FIRST_WAIT, 0.0

    def failed(self) -> None:
        """The store did not answer: wait longer every time."""
        self.rest(self._wait)
        self._wait = min(2 * self._wait, self.LONGEST_WAIT)

    def rest(self, seconds: float) -> None:
        """Send nothing for a while."""
        self._dead_until = time.monotonic() + seconds


def retry_while_locked(action: Callable[[], T]) -> T:
    """Do something again while the database is locked by other writers, within bounds."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return action()
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.05, 0.5))  # not all at the same moment again


def client_of(uri: str) -> Any:
    """Return a client of a store that must exist."""
    if uri.startswith(("http://", "https://")):
        _reach(uri)
    path = database.sqlite_path(uri)
    if path is not None and not database.is_whole(path):
        raise TrackingError(f"there are no runs here yet (no {path.name} in {path.parent}): try wsl run")
    return import_mlflow().MlflowClient(tracking_uri=uri)


def describe_store(uri: str) -> str:
    """Return what a store is, its version and how much is in it, or raise what is wrong; nothing is created."""
    path = database.sqlite_path(uri)
    if path is not None and not path.exists():
        return f"no database at {path} yet: the first run makes it"
    if path is not None and not database.is_whole(path):
        return f"{path} is half-made, and nothing is in it: the next run makes it anew"
    try:
        version = _schema(path) if path is not None else ""
        client = client_of(uri)
        experiments = retry_while_locked(lambda: client.search_experiments(max_results=1000))
        if uri.startswith(("http://", "https://")):
            version = _server_version(uri)
    except TrackingError:
        raise
    except Exception as error:
        raise TrackingError(
            f"the tracking store {redact(uri)} cannot be used ({redact(one_line(error))}): "
            "fix it, or choose another with --tracking-uri"
        ) from None
    count = f"{len(experiments)} experiment{'s' if len(experiments) != 1 else ''}"
    return f"{redact(uri)} answers: {version}MLflow {import_mlflow().__version__} here, {count}"


def _server_version(uri: str) -> str:
    try:
        with urllib.request.urlopen(f"{_address(uri)}/version", timeout=REACH_SECONDS) as answer:
            return f"MLflow {answer.read(40).decode(errors='replace').strip()} there, "
    except (OSError, ValueError, http.client.HTTPException):
        return ""  # a server may hide its version behind a log-in


def _schema(path: Path) -> str:
    """Return the schema of an embedded database; another one than MLflow wants is an error with the remedy."""
    folder = Path(import_mlflow().__file__).parent / "store" / "db_migrations"
    from alembic.script import ScriptDirectory

    wanted = ScriptDirectory(str(folder)).get_current_head()
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if found != wanted:
        raise TrackingError(
            f"{path} has the schema {found}, but this MLflow wants {wanted}: keep a copy, then "
            f"`mlflow db upgrade {database.sqlite_uri(path)}`"
        )
    return f"schema {found}, "


def _reach(uri: str) -> None:
    """Fail soon if nobody answers: MLflow itself would try for minutes."""
    try:
        Request(lambda: _knock(uri)).outcome(2 * REACH_SECONDS)
    except (OSError, ValueError, http.client.HTTPException, TrackingError) as error:
        raise TrackingError(
            f"no tracking server answers at {redact(uri)} ({redact(one_line(error))}): start it, or choose another "
            "with --tracking-uri (leave it out for the embedded database)"
        ) from None


def _knock(uri: str) -> None:
    # An answer that MLflow is to judge is an answer, too.
    with (
        contextlib.suppress(urllib.error.HTTPError),
        urllib.request.urlopen(f"{_address(uri)}/health", timeout=REACH_SECONDS),
    ):
        pass


def _address(uri: str) -> str:
    """Return a server's address without user and password: urllib takes them for a port, and would print them."""
    parts = urllib.parse.urlsplit(uri)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return bare.geturl().rstrip("/")


def _ensure_database(uri: str) -> None:
    path = database.sqlite_path(uri)
    try:
        if path is not None:
            database.ensure(path)
    except OSError as error:
        assert path is not None
        raise TrackingError(
            f"{path.parent} cannot be written ({one_line(error)}): run in a directory of your own"
        ) from None
