"""The one way to MLflow: an entry says what the store is to have of a run, an outbox sends what is missing of it.

What is on disk is the truth; runs, studies and fits build entries from it. Delivering can be repeated at will: a run
is found by its key, the store says what it has, metric values carry the time of their record, and a run is closed only
when the store has been asked again and has everything.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import attrs

from wsl_toolkit.errors import TrackingError
from wsl_toolkit.plugins.code_identity import PROVENANCE
from wsl_toolkit.runs.tracking.background import Request, patience
from wsl_toolkit.runs.tracking.library import import_mlflow
from wsl_toolkit.runs.tracking.store import BATCH, Tracker

T = TypeVar("T")

RUNNING, OPEN, DELETED = "RUNNING", "SCHEDULED", "DELETED"
"""An entry is RUNNING while a process works on it; any other is OPEN in the store until everything is there."""

NOTE = "mlflow.note.content"
MODEL = "model"
LONGEST_PARAM = 6000
SLOWEST_UPLOAD = 2**18
"""Bytes a second that a store must take of files, beyond its patience."""
ALL_RUNS = 3  # mlflow.entities.ViewType.ALL: a run that the user deleted stays deleted


class Value(NamedTuple):
    """One value of a metric, at a step and a time in milliseconds."""

    key: str
    value: float
    time: int
    step: int


@attrs.frozen(kw_only=True)
class Entry:
    """What a store is to have of one run."""

    key: str
    """What its run is known by, whoever made it: the value of the outbox's tag."""
    run_id: str | None = None
    """Its id in the store, where that is known."""
    name: str
    parent: str | None = None
    source: str = "wsl"
    params: Mapping[str, Any] = attrs.field(factory=dict)
    tags: Mapping[str, str] = attrs.field(factory=dict)
    description: str = ""
    inputs: Sequence[Mapping[str, str]] = ()
    metrics: Sequence[Value] = ()
    files: Sequence[tuple[Path, str]] = ()
    """Files, each with the folder of the run's artifacts that it belongs to ('' for the top)."""
    model: Path | None = None
    """The folder of a model in MLflow's format."""
    status: str
    started: int | None = None
    ended: int | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing will be added to it."""
        return self.status not in (RUNNING, OPEN)


class Delivery(NamedTuple):
    """The run that an entry has in the store, and how much was sent."""

    run_id: str
    values: int
    files: int


@attrs.define
class _Content:
    """What the store is known to have of a run."""

    status: str
    params: set[str] = attrs.field(factory=set)
    inputs: set[str] = attrs.field(factory=set)
    values: set[tuple[str, int]] = attrs.field(factory=set)
    description: str | None = None
    tags: dict[str, str] = attrs.field(factory=dict)
    has_model: bool = False
    is_new: bool = False
    """Whether it was made by this outbox, and so was empty."""
    requests: int = 0
    """How many requests with metrics were made since the store was asked what it has."""


class DeletedRunError(TrackingError):
    """The user deleted the run in the store, and it stays deleted."""


class Outbox:
    """Delivers entries to one experiment of a store, and remembers what is there until a request fails."""

    def __init__(self, tracker: Tracker, tag: str, scope: str = "") -> None:
        self.tracker = tracker
        self.client = tracker.client
        self.tag = tag
        """The tag that holds an entry's key."""
        self.scope = scope
        """A filter whose runs are read together; without one, each key is looked for by itself."""
        self.runs: dict[str, tuple[str, str]] = {}
        """Run id and status of each key that the store was asked about."""
        self._content: dict[str, _Content] = {}
        self._last: Request[Any] | None = None
        self._in_doubt: set[str] = set()
        """Keys of which the store may have made a run without our hearing of it."""

    # -------------------------------------------------------------- requests

    def start(self, entry: Entry) -> Request[Delivery]:
        """Begin to deliver an entry in the background; one that still waits for its answer must end first."""
        return self._start(lambda: self._deliver(entry))

    def deliver(self, entry: Entry) -> Delivery:
        """Send what the store lacks of an entry, and close its run if the entry is closed; in bounded time."""
        return self.start(entry).outcome(patience() + _size(entry) / SLOWEST_UPLOAD)

    def run_of(self, entry: Entry, *, is_new: bool = False) -> str:
        """Return the id of an entry's run, be it deleted: the known one, the one that has its key, or a new one."""
        if entry.key in self.runs:
            return self.runs[entry.key][0]
        return self._start(lambda: self._run_of(entry, is_new=is_new)).outcome(patience())

    def read(self) -> None:
        """Learn which runs of the scope are in the store; delete doubles."""
        self._start(self._read).outcome(patience())

    def _start(self, action: Callable[[], T]) -> Request[T]:
        if self._last is not None and not self._last.is_done:
            raise TrackingError("the store has not answered an earlier request yet")
        self._last = request = Request(action)
        return request

    # ------------------------------------------------------------------ runs

    def has_run(self, key: str) -> bool:
        """Ask the store whether there is a run of a key."""
        self._start(lambda: self._read(key)).outcome(patience())
        return key in self.runs

    def _read(self, key: str = "") -> None:
        found: dict[str, list[Any]] = {}
        for run in self._search(self.scope or f"tags.`{self.tag}` = '{key}'"):
            if self.tag in run.data.tags:
                found.setdefault(run.data.tags[self.tag], []).append(run)
        self.runs |= {key: self._choose(key, runs) for key, runs in found.items()}

    def _search(self, where: str) -> Iterator[Any]:
        token = None
        while True:
            page = self.client.search_runs(
                [self.tracker.experiment_id],
                filter_string=where,
                run_view_type=ALL_RUNS,
                order_by=["attributes.start_time ASC"],
                max_results=1000,
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return

    def _choose(self, key: str, runs: list[Any]) -> tuple[str, str]:
        """Return the run of a key and its status; a second one, made by a request that came late, is deleted."""
        active = [run for run in runs if run.info.lifecycle_stage == "active"]
        if not active:
            return runs[0].info.run_id, DELETED
        known = self.runs.get(key, ("", ""))[0]
        unfinished = (OPEN, RUNNING)
        active.sort(key=lambda run: (run.info.run_id != known, run.info.status in unfinished))
        for double in active[1:]:
            if double.info.status in unfinished:
                self.client.delete_run(double.info.run_id)
        return active[0].info.run_id, active[0].info.status

    def _run_of(self, entry: Entry, *, is_new: bool = False) -> str:
        if entry.key not in self.runs and not is_new:
            if entry.run_id is not None and self._exists(entry.run_id):
                self.runs[entry.key] = (entry.run_id, "")
                self._in_doubt.add(entry.key)
            elif not self.scope or entry.key in self._in_doubt:
                self._read(entry.key)
        if entry.key not in self.runs:
            self._create(entry)
        return self.runs[entry.key][0]

    def _exists(self, run_id: str) -> bool:
        exceptions = import_mlflow().exceptions
        try:
            self.client.get_run(run_id)
        except exceptions.MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False  # the store was deleted or exchanged since
            raise
        return True

    def _create(self, entry: Entry) -> None:
        tags = {"mlflow.user": _user(), "mlflow.source.name": entry.source, "mlflow.source.type": "LOCAL"}
        tags |= {**entry.tags, self.tag: entry.key, NOTE: entry.description}
        if entry.parent:
            tags["mlflow.parentRunId"] = entry.parent
        was_in_doubt = entry.key in self._in_doubt
        self._in_doubt.add(entry.key)
        run = self.client.create_run(
            self.tracker.experiment_id, start_time=entry.started, tags=tags, run_name=entry.name
        )
        if not was_in_doubt:
            self._in_doubt.discard(entry.key)
        run_id = run.info.run_id
        self.runs[entry.key] = (run_id, RUNNING)
        self._content[run_id] = made = _Content(RUNNING, description=entry.description, tags=tags, is_new=True)
        if entry.status != RUNNING:
            self.client.update_run(run_id, status=OPEN)  # should this process be killed now: it must not say RUNNING
            self.runs[entry.key], made.status = (run_id, OPEN), OPEN

    # --------------------------------------------------------------- content

    def _deliver(self, entry: Entry) -> Delivery:
        try:
            return self._send(entry)
        except BaseException:
            # Something may have arrived although the store did not say so: ask next time.
            run_id, _ = self.runs.pop(entry.key, ("", ""))
            self._content.pop(run_id, None)
            self._in_doubt.add(entry.key)
            raise

    def _send(self, entry: Entry) -> Delivery:
        run_id = self._run_of(entry)
        there = self._content.get(run_id) or self._ask(run_id)
        self._send_params(run_id, entry, there)
        self._send_inputs(run_id, entry, there)
        sent = self._send_metrics(run_id, entry, there)
        for path, folder in entry.files:
            self.client.log_artifact(run_id, str(path), folder or None)
        if entry.model is not None and not there.has_model:
            self._send_model(run_id, entry.model, there)
        if there.description != entry.description:
            self.client.set_tag(run_id, NOTE, entry.description)
            there.description = entry.description
        for name, value in entry.tags.items():  # a run that went on under other code says so
            if name.startswith(PROVENANCE) and there.tags.get(name) != value:
                self.client.set_tag(run_id, name, value)
                there.tags[name] = value
        if entry.is_closed:
            self._check_arrived(run_id, entry, there)
            if entry.key in self._in_doubt and not self.scope:
                self._read(entry.key)  # a double may have come late
            self.client.set_terminated(run_id, entry.status, end_time=entry.ended)
            self._content.pop(run_id)
        elif there.status != entry.status:
            self.client.update_run(run_id, status=entry.status)
            there.status = entry.status
        self.runs[entry.key] = (run_id, entry.status)
        return Delivery(run_id, sent, len(entry.files) + (entry.model is not None))

    def _ask(self, run_id: str) -> _Content:
        """Ask the store what it has of a run."""
        run = self.client.get_run(run_id)
        if run.info.lifecycle_stage == "deleted":
            raise DeletedRunError(f"run {run_id} was deleted in the store")
        content = _Content(
            run.info.status,
            params=set(run.data.params),
            inputs={item.dataset.name for item in run.inputs.dataset_inputs} if run.inputs else set(),
            values=self._values(run_id, run.data.metrics),
            description=run.data.tags.get(NOTE, ""),
            tags=dict(run.data.tags),
            has_model=bool(run.outputs and run.outputs.model_outputs),
        )
        self._content[run_id] = content
        return content

    def _values(self, run_id: str, names: Mapping[str, Any]) -> set[tuple[str, int]]:
        return {(key, value.step) for key in names for value in self.client.get_metric_history(run_id, key)}

    def _send_params(self, run_id: str, entry: Entry, there: _Content) -> None:
        entity = import_mlflow().entities.Param
        missing = {key: value for key, value in entry.params.items() if key not in there.params}
        if missing:
            params = [entity(key, str(value)[:LONGEST_PARAM]) for key, value in missing.items()]
            self.client.log_batch(run_id, params=params)
            there.params |= missing.keys()

    def _send_inputs(self, run_id: str, entry: Entry, there: _Content) -> None:
        """Record datasets' names and digests, without their data, as inputs of a run."""
        missing = [item for item in entry.inputs if item["name"] not in there.inputs]
        if not missing:
            return
        from mlflow.data.code_dataset_source import CodeDatasetSource
        from mlflow.data.meta_dataset import MetaDataset
        from mlflow.entities import DatasetInput, InputTag

        for item in missing:
            dataset = MetaDataset(source=CodeDatasetSource(tags={}), name=item["name"], digest=item["digest"][:32])
            tags = [InputTag("mlflow.data.context", item["context"])]
            self.client.log_inputs(run_id, [DatasetInput(dataset._to_mlflow_entity(), tags)])
            there.inputs.add(item["name"])

    def _send_metrics(self, run_id: str, entry: Entry, there: _Content) -> int:
        entity = import_mlflow().entities.Metric
        missing = [value for value in entry.metrics if (value.key, value.step) not in there.values]
        for start in range(0, len(missing), BATCH):
            chunk = missing[start : start + BATCH]
            there.requests += 1
            self.client.log_batch(run_id, metrics=[entity(v.key, float(v.value), v.time, v.step) for v in chunk])
            there.values |= {(value.key, value.step) for value in chunk}
        return len(missing)

    def _send_model(self, run_id: str, folder: Path, there: _Content) -> None:
        """Record a model that serves; one whose delivery was broken off is completed, not made twice."""
        entities = import_mlflow().entities
        experiment = self.tracker.experiment_id
        begun = self.client.search_logged_models([experiment], filter_string=f"source_run_id = '{run_id}'")
        model = begun[0] if begun else self.client.create_logged_model(experiment, MODEL, source_run_id=run_id)
        _name_in_its_file(folder, run_id, model.model_id)
        self.client.log_model_artifacts(model.model_id, str(folder))
        self.client.finalize_logged_model(model.model_id, "READY")
        self.client.log_outputs(run_id, [entities.LoggedModelOutput(model.model_id, step=0)])
        there.has_model = True

    def _check_arrived(self, run_id: str, entry: Entry, there: _Content) -> None:
        """Read a run back before it is called delivered: a server may have said yes and kept nothing."""
        run = self.client.get_run(run_id)
        wanted = {(value.key, value.step) for value in entry.metrics}
        # What went in one request is there as a whole or not at all.
        at_once = there.is_new and there.requests == 1 and {key for key, _ in wanted} <= run.data.metrics.keys()
        lost = set() if at_once or not there.requests else wanted - self._values(run_id, run.data.metrics)
        params = entry.params.keys() - run.data.params.keys()
        if lost or params:
            raise TrackingError(
                f"the store took {len(lost)} metric values and {len(params)} parameters of run {run_id} and did not "
                "keep them"
            )


def _size(entry: Entry) -> int:
    files = [path for path, _ in entry.files]
    files += [path for path in entry.model.rglob("*") if path.is_file()] if entry.model is not None else []
    return sum(path.stat().st_size for path in files)


def _name_in_its_file(folder: Path, run_id: str, model_id: str) -> None:
    """Write a model's ids into its MLmodel file, by which MLflow knows where a loaded model came from."""
    from mlflow.models import Model

    file = folder / "MLmodel"
    model = Model.load(file)
    model.run_id, model.model_id, model.model_uuid = run_id, model_id, model_id
    model.save(file)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
