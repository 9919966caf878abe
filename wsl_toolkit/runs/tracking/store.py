"""MLflow's stores: which one, whether it answers, its experiments and pages. The only module that imports MLflow.

Our own record on disk is the source of truth (`records.py`); a store gets it in batches (`tracked_run.py`), and what
did not arrive is delivered later (`delivery.py`).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import random
import re
import sqlite3
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from wsl_toolkit.errors import TrackingError, did_you_mean, one_line
from wsl_toolkit.labels.candidate_sets import CandidateSets

T = TypeVar("T")

HOME = Path("wsl-runs")
"""The one folder on disk, in the working directory: database, artifacts, records."""

REACH_SECONDS = 5.0
BUSY_SECONDS = 60.0
"""For so long a store that is locked by other writers is asked again."""

BATCH = 1000
CANDIDATES_FILE = "candidates.safetensors"


_SECRET_KEYS = "password|passwd|pwd|token|secret|key|signature|sig|credential"


def redact(text: str) -> str:
    """Hide users, passwords and tokens of every URI in a text."""
    # Up to the last @ before the host: a password may hold one itself.
    text = re.sub(r"://[^/\s?#'\"]*@", "://***@", text)
    return re.sub(rf"(?i)([?&;][\w.-]*(?:{_SECRET_KEYS})[\w.-]*=)[^&;#\s'\"]+", r"\1***", text)


def default_uri(home: Path = HOME) -> str:
    """Return the URI of the embedded database."""
    return f"sqlite:///{(home / 'mlflow.db').resolve()}"


def choose_uri(option: str | None, home: Path = HOME) -> str:
    """Return the store to use: the flag, else MLFLOW_TRACKING_URI, else the embedded database."""
    return option or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(home)


def import_mlflow() -> Any:
    """Import MLflow with bounded waits, quiet, and without telemetry."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # A request whose answer was lost may have been carried out: repeating it blindly would make a run twice. Whoever
    # repeats one here asks the store first what it has.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # It prints a traceback of every error that it then raises, which we report ourselves.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return mlflow


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


class Tracker:
    """A tracking store and one experiment in it."""

    def __init__(self, uri: str, experiment: str, home: Path = HOME) -> None:
        self.uri = uri
        self.home = home
        self.line = Line()
        self.check_answers()
        try:
            with _creation_lock(uri, home):
                mlflow = import_mlflow()
                self.client = mlflow.MlflowClient(tracking_uri=uri)
                self.experiment_id = insist(lambda: self._experiment(experiment))
        except TrackingError:
            raise
        except Exception as error:
            raise TrackingError(f"the tracking store {redact(uri)} cannot be used: {redact(one_line(error))}") from None
        self.experiment = experiment

    def check_answers(self) -> None:
        """Fail soon if a server does not answer."""
        if self.uri.startswith(("http://", "https://")):
            _reach(self.uri)

    @property
    def label(self) -> str | None:
        """The store as run folders remember it: no secrets, and None for the embedded one, which moves with them."""
        return None if self.uri == default_uri(self.home) else redact(self.uri)

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            # The location is fixed when the experiment is made, so it must not depend on who makes it from where.
            artifacts = (self.home / "artifacts").resolve().as_uri() if self.uri.startswith("sqlite:") else None
            kind = {"mlflow.experimentKind": "custom_model_development"}
            return str(self.client.create_experiment(name, artifact_location=artifacts, tags=kind))
        if found.lifecycle_stage == "deleted":
            raise TrackingError(
                f"experiment {name!r} was deleted in {redact(self.uri)}: restore it or use --experiment"
            )
        return str(found.experiment_id)


class Line:
    """When to speak to a store again: not soon after a failure, so that a lost store costs training next to nothing."""

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
        """Leave the store in peace for a while."""
        self._dead_until = time.monotonic() + seconds


def insist(action: Callable[[], T]) -> T:
    """Do something again while the database is locked by other writers, within bounds."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return action()
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.05, 0.5))  # not all at the same moment again


COLUMNS = (
    "metrics.`test/accuracy_mean`",
    "metrics.`test/accuracy_stderr`",
    "metrics.`validation/covering_rate_mean`",
    "metrics.`train/risk_mean`",
    "params.`estimator.name`",
    "params.`generator.name`",
    "params.`backbone.name`",
    "params.`trials`",
)
"""What the runs table shows at once: how well, by which method, on which setting."""

VIEW = "wsl"


def runs_page(uri: str, experiment: str | None) -> str:
    """Return the page of MLflow's interface that shows an experiment's runs with our columns."""
    client = _client(uri)
    found = [e for e in client.search_experiments() if experiment in (None, e.name)]
    if experiment is not None and not found:
        known = [e.name for e in client.search_experiments()]
        raise TrackingError(f"there is no experiment {experiment!r}.{did_you_mean(experiment, known)}")
    newest = client.search_runs(
        [e.experiment_id for e in found], order_by=["attributes.start_time DESC"], max_results=1
    )
    if not newest and experiment is None:
        return "/#/experiments"
    chosen = newest[0].info.experiment_id if newest else found[0].experiment_id
    # The interface keeps a shared view as a tag of the experiment; plain JSON is one of the forms that it reads.
    view = json.dumps({"orderByKey": "attributes.start_time", "orderByAsc": False, "selectedColumns": COLUMNS})
    client.set_experiment_tag(chosen, f"mlflow.sharedViewState.{VIEW}", view)
    return f"/#/experiments/{chosen}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"


def _client(uri: str) -> Any:
    """Return a client of a store that must exist."""
    if uri.startswith(("http://", "https://")):
        _reach(uri)
    database = uri.removeprefix("sqlite:///")
    if database != uri and not Path(database).exists():
        raise TrackingError(
            f"there are no runs here yet (no {Path(database).name} in {Path(database).parent}): try wsl run"
        )
    return import_mlflow().MlflowClient(tracking_uri=uri)


def describe_store(uri: str) -> str:
    """Return what a store is, its version and how much is in it, or raise what is wrong; nothing is created."""
    database = uri.removeprefix("sqlite:///")
    if database != uri and not Path(database).exists():
        return f"no database at {database} yet: the first run makes it"
    try:
        version = _schema(database) if database != uri else ""
        client = _client(uri)
        experiments = insist(lambda: client.search_experiments(max_results=1000))
        if uri.startswith(("http://", "https://")):
            version = _server_version(uri)
    except TrackingError:
        raise
    except Exception as error:
        raise TrackingError(
            f"the tracking store {redact(uri)} cannot be used ({redact(one_line(error))}): "
            "mend it, or choose another with --tracking-uri"
        ) from None
    count = f"{len(experiments)} experiment{'s' if len(experiments) != 1 else ''}"
    return f"{redact(uri)} answers: {version}MLflow {import_mlflow().__version__} here, {count}"


def _server_version(uri: str) -> str:
    try:
        with urllib.request.urlopen(f"{_address(uri)}/version", timeout=REACH_SECONDS) as answer:
            return f"MLflow {answer.read(40).decode(errors='replace').strip()} there, "
    except (OSError, ValueError, http.client.HTTPException):
        return ""  # a server may hide its version behind a log-in


def _schema(database: str) -> str:
    """Return the schema of an embedded database; another one than MLflow wants is an error with the remedy."""
    folder = Path(import_mlflow().__file__).parent / "store" / "db_migrations"
    from alembic.script import ScriptDirectory

    wanted = ScriptDirectory(str(folder)).get_current_head()
    with contextlib.closing(sqlite3.connect(f"{Path(database).resolve().as_uri()}?mode=ro", uri=True)) as connection:
        (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if found != wanted:
        raise TrackingError(
            f"{database} has the schema {found}, but this MLflow wants {wanted}: keep a copy, then "
            f"`mlflow db upgrade sqlite:///{database}`"
        )
    return f"schema {found}, "


def load_candidates(run_id: str, uri: str | None = None) -> CandidateSets:
    """Read a tracked run's candidate sets back."""
    client = _client(choose_uri(uri))
    try:
        return CandidateSets.load(client.download_artifacts(run_id, CANDIDATES_FILE))
    except Exception as error:
        raise TrackingError(f"run {run_id} has no readable candidate sets: {one_line(error)}") from None


def _reach(uri: str) -> None:
    """Fail soon if nobody answers: MLflow itself would try for minutes."""
    try:
        with urllib.request.urlopen(f"{_address(uri)}/health", timeout=REACH_SECONDS):
            return
    except urllib.error.HTTPError:
        return  # somebody answers; MLflow will say what it thinks of the request
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise TrackingError(
            f"no tracking server answers at {redact(uri)} ({redact(one_line(error))}): start it, or choose another "
            "with --tracking-uri (leave it out for the embedded database)"
        ) from None


def _address(uri: str) -> str:
    """Return a server's address without user and password: urllib takes them for a port, and would print them."""
    parts = urllib.parse.urlsplit(uri)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return bare.geturl().rstrip("/")


@contextlib.contextmanager
def _creation_lock(uri: str, home: Path) -> Iterator[None]:
    """Let one process at a time create the embedded database: two that migrate a fresh one together, break it."""
    if uri != default_uri(home):
        yield
        return
    from filelock import FileLock

    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock", timeout=60):
            yield
            with sqlite3.connect(home / "mlflow.db") as database:
                database.execute("PRAGMA journal_mode=WAL")
    except (OSError, sqlite3.Error) as error:
        raise TrackingError(f"{home} cannot be written ({one_line(error)}): run in a directory of your own") from None
