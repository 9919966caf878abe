"""From a run's folder to the tracking store, as often as need be: what is there already is not sent again.

The store itself says which steps of which metric it has. Metrics carry the time of their record, so that even a batch
which arrived although its answer was lost is recognised by MLflow as the same one.
"""

from __future__ import annotations

import contextlib
import getpass
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from wsl_toolkit.errors import TrackingError, WslError, one_line
from wsl_toolkit.runs.folder import RUNNING, RunFolder, all_folders, bury, dead_folders
from wsl_toolkit.runs.tracking.store import BATCH, Tracker, import_mlflow, redact

LOCAL_ID = "wsl.folder"
"""The tag by which a run is found again whose creation was the last thing that its process did."""

UNDELIVERED = "undelivered"


def create_run(tracker: Tracker, folder: RunFolder) -> None:
    """Make the run of a folder in the store, and call the folder by the id that it got."""
    tags = {
        "mlflow.user": _user(),
        "mlflow.source.name": "wsl",
        "mlflow.source.type": "LOCAL",
        LOCAL_ID: folder.run_id,
        "mlflow.note.content": folder.fact("description", ""),
        **folder.fact("tags", {}),
    }
    if folder.fact("parent"):
        tags["mlflow.parentRunId"] = folder.fact("parent")
    run = tracker.client.create_run(
        tracker.experiment_id, start_time=folder.fact("started"), tags=tags, run_name=folder.fact("name")
    )
    folder.take_id(run.info.run_id)
    send_params(tracker, folder)


def send_params(tracker: Tracker, folder: RunFolder) -> None:
    """Record the parameters; the same ones again change nothing."""
    entity = import_mlflow().entities.Param
    params = [entity(key, str(value)[:6000]) for key, value in folder.fact("params", {}).items()]
    tracker.client.log_batch(folder.run_id, params=params)


def send_inputs(tracker: Tracker, run_id: str, inputs: list[dict[str, str]]) -> None:
    """Record datasets' names and digests, without their data, as inputs of a run."""
    import_mlflow()
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import DatasetInput, InputTag

    for item in inputs:
        dataset = MetaDataset(source=CodeDatasetSource(tags={}), name=item["name"], digest=item["digest"][:32])
        tags = [InputTag("mlflow.data.context", item["context"])]
        tracker.client.log_inputs(run_id, [DatasetInput(dataset._to_mlflow_entity(), tags)])


def send_files(tracker: Tracker, folder: RunFolder) -> int:
    """Upload what waits in `undelivered/`, and remove it from there; return how many files there were."""
    waiting = folder.path / UNDELIVERED
    files = sorted(path for path in waiting.rglob("*") if path.is_file())
    for path in files:
        parent = path.parent.relative_to(waiting)
        tracker.client.log_artifact(folder.run_id, str(path), None if parent == Path() else parent.as_posix())
        path.unlink()
    shutil.rmtree(waiting, ignore_errors=True)
    return len(files)


def metrics_on_disk(folder: RunFolder) -> list[Any]:
    """Return every metric value that a folder knows, as MLflow's entities."""
    entity = import_mlflow().entities.Metric
    found = [
        entity(key, float(value), timed.time, timed.record.epoch)
        for timed in folder.records()
        for key, value in timed.metrics.items()
    ]
    summary = folder.fact("summary")
    if summary:
        found += [entity(k, float(v), summary["time"], summary["step"]) for k, v in summary["values"].items()]
    return found


def catch_up(tracker: Tracker, folder: RunFolder) -> tuple[int, int]:
    """Deliver everything of a run that the store lacks; return how many metric values and files that were."""
    if not _ensure_run(tracker, folder):
        return 0, 0
    client, run_id = tracker.client, folder.run_id
    run = client.get_run(run_id)
    if run.info.lifecycle_stage == "deleted":
        folder.note(delivered=True)  # the user's decision; the record on disk stays
        raise TrackingError(f"run {run_id} was deleted in the store: its record stays in {folder.path}")
    send_params(tracker, folder)
    known = {item.dataset.name for item in run.inputs.dataset_inputs} if run.inputs else set()
    send_inputs(tracker, run_id, [item for item in folder.fact("inputs", []) if item["name"] not in known])
    there = {(key, metric.step) for key in run.data.metrics for metric in client.get_metric_history(run_id, key)}
    missing = [metric for metric in metrics_on_disk(folder) if (metric.key, metric.step) not in there]
    for start in range(0, len(missing), BATCH):
        client.log_batch(run_id, metrics=missing[start : start + BATCH])
    files = send_files(tracker, folder)
    client.set_tag(run_id, "mlflow.note.content", describe(folder))
    _delete_doubles(tracker, folder)
    status = folder.fact("status", RUNNING)
    if status != RUNNING:
        client.set_terminated(run_id, status, end_time=folder.fact("ended"))
        folder.note(delivered=True)
    return len(missing), files


def describe(folder: RunFolder) -> str:
    """Return a run's description, with the reason where it did not end well."""
    text, message = folder.fact("description", ""), folder.fact("message")
    return f"{text}\n\n**{folder.fact('status').capitalize()}**: {message}" if message else str(text)


def _ensure_run(tracker: Tracker, folder: RunFolder) -> bool:
    """Make the run if the store has none; one that was refused at its very start is forgotten instead."""
    if not folder.is_offline:
        return True
    found = _runs_of(tracker, folder.run_id)
    if not found and folder.fact("refused"):
        folder.discard()
        return False
    folder.note(local_id=folder.run_id)
    if found:
        folder.take_id(found[0])
    else:
        create_run(tracker, folder)
    return True


def _runs_of(tracker: Tracker, local_id: str) -> list[str]:
    """Return the ids of the runs that were made for a folder."""
    found = tracker.client.search_runs(
        [tracker.experiment_id],
        filter_string=f"tags.`{LOCAL_ID}` = '{local_id}'",
        order_by=["attributes.start_time ASC"],
    )
    return [run.info.run_id for run in found]


def _delete_doubles(tracker: Tracker, folder: RunFolder) -> None:
    """Delete a second run of the same folder: a slow store may have made one long after it was given up."""
    if folder.fact("local_id"):
        for run_id in _runs_of(tracker, folder.fact("local_id")):
            if run_id != folder.run_id:
                tracker.client.delete_run(run_id)


# ------------------------------------------------------------------ all runs


def sweep(home: Path, note: Callable[[str], None]) -> list[RunFolder]:
    """Write down the end of every run of this machine whose process is gone; return those runs."""
    from filelock import FileLock, Timeout

    dead: list[RunFolder] = []
    if not any(dead_folders(home)):
        return dead
    # A folder that cannot be written, or that another command sweeps right now, is no reason to fail.
    with contextlib.suppress(OSError, Timeout, WslError), FileLock(home / ".sweep.lock", timeout=30):
        for folder in dead_folders(home):
            if folder.fact("started") is None:
                folder.discard()  # it died before it had written what it was going to be
                continue
            bury(folder)
            dead.append(folder)
            if folder.fact("message"):
                note(f"run {folder.run_id} is marked {folder.fact('status')}: {folder.fact('message')}")
    return dead


def tell(tracker: Tracker, dead: Sequence[RunFolder]) -> None:
    """Tell the store of runs whose process died; one that does not answer is told by `wsl sync` later."""
    for folder in dead:
        if folder.fact("store") == tracker.label:
            with contextlib.suppress(Exception):
                catch_up(_for_experiment(tracker, folder.fact("experiment")), folder)


def waiting(home: Path) -> list[RunFolder]:
    """Return the runs that have ended, and of which the store may lack something."""
    return [
        folder
        for folder in all_folders(home)
        if folder.fact("status") != RUNNING and not folder.fact("delivered") and folder.process() is None
    ]


def sync(tracker: Tracker, folders: list[RunFolder]) -> Iterator[tuple[RunFolder, str]]:
    """Deliver what waits; return each run with what became of it."""
    from filelock import FileLock

    with FileLock(tracker.home / ".sync.lock"):
        for folder in folders:
            if folder.fact("store") != tracker.label:
                other = folder.fact("store") or "the embedded database"
                yield folder, f"belongs to another store: wsl sync --tracking-uri {other}"
                continue
            try:
                metrics, files = catch_up(_for_experiment(tracker, folder.fact("experiment")), folder)
                yield folder, f"{metrics} metric values and {files} files delivered"
            except TrackingError as error:
                yield folder, str(error)
            except Exception as error:
                raise TrackingError(
                    f"run {folder.run_id} could not be delivered: {redact(one_line(error))}; nothing is lost, try again"
                ) from None


def _for_experiment(tracker: Tracker, experiment: str) -> Tracker:
    return tracker if tracker.experiment == experiment else Tracker(tracker.uri, experiment, tracker.home)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
