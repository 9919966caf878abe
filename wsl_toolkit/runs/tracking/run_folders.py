"""From the folders of runs and fits to the tracking store, as often as need be: what is there is not sent again."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from wsl_toolkit.errors import TrackingError, WslError, one_line
from wsl_toolkit.runs.folder import (
    RUNNING,
    RunFolder,
    TimedRecord,
    all_folders,
    children_of,
    dead_folders,
)
from wsl_toolkit.runs.tracking.outbox import MODEL, DeletedRunError, Delivery, Entry, Outbox, Value
from wsl_toolkit.runs.tracking.store import Tracker, redact
from wsl_toolkit.system.files import remove_remains
from wsl_toolkit.system.shared_work import remove_abandoned

LOCAL_ID = "wsl.folder"
"""The tag by which a run is found again whose creation was the last thing that its process did."""

UNDELIVERED = "undelivered"


def outbox_of(tracker: Tracker) -> Outbox:
    """Return the outbox in which folders are known by their first name."""
    return Outbox(tracker, LOCAL_ID)


def entry_of(folder: RunFolder, records: Sequence[TimedRecord] | None = None) -> Entry:
    """Return what the store is to have of a folder; of its epochs all, or the given ones."""
    metrics = [
        Value(key, float(value), timed.time, timed.record.epoch)
        for timed in (folder.records() if records is None else records)
        for key, value in timed.metrics.items()
    ]
    summary = folder.fact("summary")
    if summary:
        metrics += [Value(k, float(v), summary["time"], summary["step"]) for k, v in summary["values"].items()]
    waiting = folder.path / UNDELIVERED
    model = waiting / MODEL
    paths = [path for path in sorted(waiting.rglob("*")) if path.is_file() and model not in path.parents]
    return Entry(
        key=folder.fact("local_id", folder.run_id),
        run_id=None if folder.is_offline else folder.run_id,
        name=folder.fact("name") or folder.run_id,
        parent=folder.fact("parent"),
        params=folder.fact("params", {}),
        tags=folder.fact("tags", {}),
        description=describe(folder),
        inputs=folder.fact("inputs", []),
        metrics=metrics,
        files=[(path, path.parent.relative_to(waiting).as_posix().removeprefix(".")) for path in paths],
        model=model if (model / "MLmodel").is_file() else None,
        status=folder.fact("status", RUNNING),
        started=folder.fact("started"),
        ended=folder.fact("ended"),
    )


def describe(folder: RunFolder) -> str:
    """Return a run's description, with the reason where it did not end well."""
    text, message = folder.fact("description", ""), folder.fact("message")
    return f"{text}\n\n**{folder.fact('status', RUNNING).capitalize()}**: {message}" if message else str(text)


def remove_sent(entry: Entry) -> None:
    """Remove files that the store has from where they waited."""
    for path, _ in entry.files:
        path.unlink(missing_ok=True)
    if entry.model is not None:
        shutil.rmtree(entry.model, ignore_errors=True)


def make_run(outbox: Outbox, folder: RunFolder, *, is_new: bool = False) -> None:
    """See to it that a folder has its run in the store, and call the folder by the run's id."""
    folder.note(local_id=folder.fact("local_id", folder.run_id))
    _take_id(folder, outbox.run_of(entry_of(folder, ()), is_new=is_new))


def _take_id(folder: RunFolder, run_id: str) -> None:
    """Call a folder by the id that the store gave; its trials learn of it."""
    if run_id != folder.run_id:
        trials = [] if folder.is_offline else list(children_of(folder).values())
        folder.take_id(run_id)
        for trial in trials:
            trial.note(parent=run_id)


def deliver(outbox: Outbox, folder: RunFolder) -> Delivery:
    """Deliver everything of a run that the store lacks; a store that lost the run gets it anew."""
    # Refused at its very start: it is forgotten, unless the store made a run without saying so.
    if folder.is_offline and folder.fact("refused") and not outbox.has_run(folder.run_id):
        folder.discard()
        return Delivery("", 0, 0)
    try:
        make_run(outbox, folder)
        entry = entry_of(folder)
        done = outbox.deliver(entry)
    except DeletedRunError as error:
        folder.note(delivered=True)  # the user's decision; the record on disk stays
        raise TrackingError(f"{error}: its record stays in {folder.path}") from None
    remove_sent(entry)
    if entry.is_closed:
        shutil.rmtree(folder.path / UNDELIVERED, ignore_errors=True)
        folder.note(delivered=True)
    return done


# ------------------------------------------------------------------ all runs


def sweep(home: Path, note: Callable[[str], None]) -> list[RunFolder]:
    """Write down the end of every run of this machine whose process is gone, and remove what it had half written."""
    from filelock import FileLock, Timeout

    dead: list[RunFolder] = []
    inner = (place for kind in ("runs/*", "studies/*", "studies/*/*") for place in home.glob(kind))
    for place in (home, home / "jobs", home / "features", *inner):
        remove_remains(place)
    remove_abandoned(home / "slurm")
    if not any(dead_folders(home)):
        return dead
    # A folder that cannot be written, or that another command sweeps right now, is no reason to fail.
    with contextlib.suppress(OSError, Timeout, WslError), FileLock(home / ".sweep.lock", timeout=30):
        for folder in dead_folders(home):
            if folder.fact("started") is None:
                folder.discard()  # it was killed before it had written what it was going to be
                continue
            if not folder.leave_for_dead():
                continue
            dead.append(folder)
            if folder.fact("message"):
                note(f"run {folder.run_id} is marked {folder.fact('status')}: {folder.fact('message')}")
    return dead


def tell(tracker: Tracker, dead: Sequence[RunFolder]) -> None:
    """Tell the store of runs whose process is gone; one that does not answer is told by `wsl sync` later."""
    for folder in dead:
        if folder.fact("store") == tracker.label:
            with contextlib.suppress(Exception):
                deliver(outbox_of(_for_experiment(tracker, folder.fact("experiment"))), folder)


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
            before, was_offline = folder.run_id, folder.is_offline
            try:
                done = deliver(outbox_of(_for_experiment(tracker, folder.fact("experiment"))), folder)
            except TrackingError as error:
                yield folder, str(error)
            except Exception as error:
                tracker.check_answers()  # else all others would fail alike, and slowly
                yield folder, f"could not be delivered: {redact(one_line(error))}; nothing is lost, try again"
            else:
                anew = "" if was_offline or done.run_id == before else f" to a new run: the store has lost {before}"
                yield folder, f"{done.values} metric values and {done.files} files delivered{anew}"


def _for_experiment(tracker: Tracker, experiment: str) -> Tracker:
    return tracker if tracker.experiment == experiment else Tracker(tracker.uri, experiment, tracker.home)
