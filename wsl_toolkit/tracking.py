"""MLflow, and the only module that imports it: stores, runs, metrics, artifacts, models.

Our own record on disk is the source of truth (`records.py`); MLflow gets it in batches. A store that goes away in the
middle stops no training: what did not arrive is kept, and delivered at the end if the store is back.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import os
import re
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.engine import EpochRecord
from wsl_toolkit.errors import TrackingError, did_you_mean, one_line
from wsl_toolkit.labels import CandidateSets

HOME = Path("wsl-runs")
"""The one folder on disk, in the working directory: database, artifacts, records."""

FLUSH_SECONDS = 5.0
REACH_SECONDS = 5.0
BATCH = 1000
CANDIDATES_FILE = "candidates.safetensors"


def redact(uri: str) -> str:
    """Hide the user and the password of a URI."""
    return re.sub(r"://[^/@\s]+@", "://***@", uri)


def default_uri(home: Path = HOME) -> str:
    """Return the URI of the embedded database."""
    return f"sqlite:///{(home / 'mlflow.db').resolve()}"


def choose_uri(option: str | None, home: Path = HOME) -> str:
    """Return the store to use: the flag, else MLFLOW_TRACKING_URI, else the embedded database."""
    return option or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(home)


def import_mlflow() -> Any:
    """Import MLflow with bounded waits, quiet, and without telemetry."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


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
        if uri.startswith(("http://", "https://")):
            _reach(uri)
        try:
            with _creation_lock(uri, home):
                mlflow = import_mlflow()
                self.client = mlflow.MlflowClient(tracking_uri=uri)
                self.experiment_id = self._experiment(experiment)
        except TrackingError:
            raise
        except Exception as error:
            raise TrackingError(f"the tracking store {redact(uri)} cannot be used: {redact(one_line(error))}") from None
        self.experiment = experiment

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

    def start(self, facts: RunFacts) -> TrackedRun:
        """Begin a run."""
        from mlflow.entities import Param

        tags = {
            "mlflow.user": _user(),
            "mlflow.source.name": "wsl",
            "mlflow.source.type": "LOCAL",
            "mlflow.note.content": facts.description,
            **facts.tags,
        }
        if facts.parent:
            tags["mlflow.parentRunId"] = facts.parent
        run = self.client.create_run(self.experiment_id, tags=tags, run_name=facts.name)
        params = [Param(key, str(value)[:6000]) for key, value in facts.params.items()]
        self.client.log_batch(run.info.run_id, params=params)
        return TrackedRun(self, run.info.run_id)


class TrackedRun:
    """One run: metrics are buffered and sent in batches, and a lost store is a warning, not an end."""

    def __init__(self, tracker: Tracker, run_id: str) -> None:
        self.tracker = tracker
        self.run_id = run_id
        self.warning: str | None = None
        self._client = tracker.client
        self._buffer: list[Any] = []
        self._sent_at = time.monotonic()

    def log_epoch(self, record: EpochRecord) -> None:
        """Buffer an epoch's metrics; send them every few seconds."""
        self._add({**record.metrics, "time/epoch_seconds": record.seconds}, record.epoch)
        if time.monotonic() - self._sent_at > FLUSH_SECONDS:
            self.flush()

    def log_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Record summary metrics."""
        self._add(values, step)

    def _add(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._buffer += [Metric(key, float(value), now, step) for key, value in values.items()]

    def flush(self) -> None:
        """Send what is buffered; keep it if the store does not answer."""
        self._sent_at = time.monotonic()
        with self._tolerant():
            while self._buffer:
                self._client.log_batch(self.run_id, metrics=self._buffer[:BATCH])
                del self._buffer[:BATCH]

    def describe(self, text: str) -> None:
        """Replace the run's markdown description."""
        with self._tolerant():
            self._client.set_tag(self.run_id, "mlflow.note.content", text)

    def log_text(self, text: str, name: str) -> None:
        """Store a small text file with the run."""
        with self._tolerant():
            self._client.log_text(self.run_id, text, name)

    def log_figure(self, figure: Any, name: str) -> None:
        """Store a figure with the run."""
        with self._tolerant():
            self._client.log_figure(self.run_id, figure, name)

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Store a file with the run."""
        with self._tolerant():
            self._client.log_artifact(self.run_id, str(path), folder)

    def log_input(self, name: str, digest: str, context: str) -> None:
        """Record a dataset's name and digest, without its data, as an input of the run."""
        from mlflow.data.code_dataset_source import CodeDatasetSource
        from mlflow.data.meta_dataset import MetaDataset
        from mlflow.entities import DatasetInput, InputTag

        with self._tolerant():
            dataset = MetaDataset(source=CodeDatasetSource(tags={}), name=name, digest=digest[:32])
            tags = [InputTag("mlflow.data.context", context)]
            self._client.log_inputs(self.run_id, [DatasetInput(dataset._to_mlflow_entity(), tags)])

    def log_model(self, model: Any, example: Any) -> None:
        """Store the network with its signature, loadable by `mlflow.pytorch.load_model`."""
        mlflow = import_mlflow()
        import torch
        from mlflow.models import infer_signature

        with self._tolerant():
            with torch.no_grad():
                output = model(example)
            mlflow.set_tracking_uri(self.tracker.uri)
            with mlflow.start_run(run_id=self.run_id):
                mlflow.pytorch.log_model(
                    model,
                    name="model",
                    signature=infer_signature(example.numpy(), output.numpy()),
                    input_example=example.numpy(),
                    pip_requirements=[f"torch=={torch.__version__.split('+')[0]}"],
                )

    def finish(self, status: str) -> None:
        """End the run as FINISHED, FAILED or KILLED."""
        self.flush()
        with self._tolerant():
            self._client.set_terminated(self.run_id, status)

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.warning = self.warning or (
                f"the tracking store {redact(self.tracker.uri)} did not take a record: {redact(one_line(error))}"
            )


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


def load_candidates(run_id: str, uri: str | None = None) -> CandidateSets:
    """Read a tracked run's candidate sets back."""
    client = _client(choose_uri(uri))
    try:
        return CandidateSets.load(client.download_artifacts(run_id, CANDIDATES_FILE))
    except Exception as error:
        raise TrackingError(f"run {run_id} has no readable candidate sets: {one_line(error)}") from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _reach(uri: str) -> None:
    """Fail soon if nobody answers: MLflow itself would try for minutes."""
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=REACH_SECONDS):
            return
    except urllib.error.HTTPError:
        return  # somebody answers; MLflow will say what it thinks of the request
    except (OSError, ValueError) as error:
        raise TrackingError(
            f"no tracking server answers at {redact(uri)} ({one_line(error)}): start it, or choose another with "
            "--tracking-uri (leave it out for the embedded database)"
        ) from None


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
