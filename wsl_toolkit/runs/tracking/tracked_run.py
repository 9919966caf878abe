"""One run in the tracking store while it trains: all of it is on disk first, and a lost store is a note, not an end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wsl_toolkit.errors import TrackingError, WslError, one_line
from wsl_toolkit.runs.folder import OFFLINE, RunFolder, TimedRecord, same_metrics
from wsl_toolkit.runs.tracking import run_folders
from wsl_toolkit.runs.tracking.background import Request, patience
from wsl_toolkit.runs.tracking.library import import_mlflow_pytorch
from wsl_toolkit.runs.tracking.outbox import MODEL, Delivery, Entry
from wsl_toolkit.runs.tracking.run_folders import UNDELIVERED
from wsl_toolkit.runs.tracking.store import Tracker, redact, retry_while_locked
from wsl_toolkit.system.files import write_atomically

FLUSH_SECONDS = 5.0
SHARE_OF_TIME = 0.05
"""Metrics are sent this often, but a slow store gets no more than this share of the time."""


class _Sending(NamedTuple):
    """What is on its way to the store."""

    entry: Entry
    request: Request[Delivery]
    epochs: int


class TrackedRun:
    """A run's folder and its run in the store; everything is on disk before the store hears of it."""

    def __init__(self, tracker: Tracker, folder: RunFolder) -> None:
        self.tracker = tracker
        self.folder = folder
        self.outbox = run_folders.outbox_of(tracker)
        self._trouble = ""
        self._store_trouble = ""
        self._fresh: list[TimedRecord] = []
        """Epochs that the store does not have yet; all are on disk."""
        self._sending: _Sending | None = None
        self._next_flush = time.monotonic() + FLUSH_SECONDS

    @property
    def warning(self) -> str | None:
        """What the user should know of the run's record, or None."""
        return self._trouble or self._store_trouble or None

    @property
    def run_id(self) -> str:
        """The run's id in the store, or a local one until the store has given one."""
        return self.folder.run_id

    def begin(self, *, offline_allowed: bool) -> None:
        """Make the run in the store; where the store must not be missing, its absence is an error."""

        def make() -> None:
            retry_while_locked(lambda: run_folders.make_run(self.outbox, self.folder, is_new=True))

        if offline_allowed and not self.tracker.backoff.is_open:
            return
        try:
            make()
        except Exception as error:
            if offline_allowed:
                self._failed(error)
                return
            raise TrackingError(
                f"the tracking store {redact(self.tracker.uri)} does not take the run: {redact(one_line(error))}"
            ) from None

    def reopen(self) -> None:
        """Go on with a run that was interrupted.

        Its epochs are not sent yet: they may be damaged, and are put right from the checkpoint first.
        """
        try:
            before = self.run_id
            run_folders.make_run(self.outbox, self.folder)
            self.outbox.deliver(run_folders.entry_of(self.folder, ()))
            if self.run_id != before and not before.startswith(OFFLINE):
                self._trouble = f"the store has lost run {before}: it is recorded anew as {self.run_id}"
        except Exception as error:
            raise TrackingError(
                f"run {self.run_id} cannot be resumed in {redact(self.tracker.uri)}: {redact(one_line(error))}"
            ) from None

    # -------------------------------------------------------------- records

    def log_epoch(self, timed: TimedRecord) -> None:
        """Take an epoch that is on disk; send what is new every few seconds."""
        self._fresh.append(timed)
        if time.monotonic() >= self._next_flush:
            self.flush()

    def log_summary(self, values: Mapping[str, float], step: int) -> None:
        """Record metrics of the whole run; the same ones again, after an interruption, keep their time."""
        before = self.folder.fact("summary")
        same = before is not None and before["step"] == step and same_metrics(before["values"], values)
        at = before["time"] if same else int(time.time() * 1000)
        self.folder.note(summary={"time": at, "step": step, "values": dict(values)})

    def flush(self) -> None:
        """Begin to send what is new, unless the store is away or busy; training does not wait for it."""
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self._take_outcome(0.0)
        if self._sending is not None or self.folder.is_offline or not self.tracker.backoff.is_open:
            return
        entry = run_folders.entry_of(self.folder, tuple(self._fresh))
        self._sending = _Sending(entry, self.outbox.start(entry), len(self._fresh))

    def _take_outcome(self, seconds: float) -> None:
        """Learn what came of the last sending, if it ended within so many seconds."""
        sending = self._sending
        if sending is None or (not sending.request.is_done and seconds == 0):
            return
        try:
            sending.request.outcome(seconds)
        except Exception as error:
            self._failed(error)
        else:
            self.tracker.backoff.worked()
            run_folders.remove_sent(sending.entry)
            del self._fresh[: sending.epochs]
            self._next_flush += max(0.0, sending.request.seconds / SHARE_OF_TIME - FLUSH_SECONDS)
        self._sending = None

    def log_input(self, name: str, digest: str, context: str) -> None:
        """Record a dataset's name and digest, without its data, as an input of the run."""
        item = {"name": name, "digest": digest, "context": context}
        known = self.folder.fact("inputs", [])
        if item not in known:
            self.folder.note(inputs=[*known, item])

    def describe(self, text: str) -> None:
        """Replace the run's markdown description."""
        self.folder.note(description=text)

    # ------------------------------------------------------------ artifacts

    def log_text(self, text: str, name: str) -> None:
        """Store a small text file with the run."""
        self._put(name, lambda path: write_atomically(path, text))

    def log_picture(self, picture: bytes, name: str) -> None:
        """Store a picture with the run."""
        self._put(name, lambda path: write_atomically(path, picture))

    def log_file(self, path: Path) -> None:
        """Store a file with the run."""

        def link(target: Path) -> None:
            try:
                os.link(path, target)
            except OSError:
                shutil.copyfile(path, target)

        self._put(path.name, link)

    def log_model(self, model: Any, example: Any) -> None:
        """Store the network with its signature, loadable by `mlflow.pytorch.load_model`."""
        mlflow_pytorch = import_mlflow_pytorch()
        import torch
        from mlflow.models import infer_signature

        with torch.no_grad():
            output = model(example)

        def save(folder: Path) -> None:
            whole = self.folder.path / ".model.new"
            shutil.rmtree(whole, ignore_errors=True)
            mlflow_pytorch.save_model(
                model,
                whole,
                signature=infer_signature(example.numpy(), output.numpy()),
                input_example=example.numpy(),
                pip_requirements=[f"torch=={torch.__version__.split('+')[0]}"],
            )
            whole.rename(folder)

        try:
            self._put(MODEL, save)
        except Exception as error:  # a network that MLflow cannot write: the run is worth keeping without it
            self._trouble = self._trouble or f"the model could not be kept with the run: {one_line(error)}"

    def _put(self, name: str, write: Callable[[Path], None]) -> None:
        """Lay a file or a folder down where deliveries wait."""
        target = self.folder.path / UNDELIVERED / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
            write(target)
        except OSError as error:
            self._trouble = self._trouble or f"{target} cannot be written ({error.strerror or error})"

    # ------------------------------------------------------------------ end

    def finish(self, status: str, message: str = "") -> None:
        """End the run as FINISHED, FAILED or KILLED; on disk first."""
        try:
            self.folder.leave(status, message)
        except WslError as error:
            self._trouble = self._trouble or str(error)  # a full disk: the next command finds that the process is gone
        try:
            self._take_outcome(patience())
            if not self.tracker.backoff.is_open:
                self.tracker.check_answers()
            run_folders.deliver(self.outbox, self.folder)
        except Exception as error:
            self.tracker.backoff.failed()
            reason = str(error) if isinstance(error, WslError) else redact(one_line(error))
            self._store_trouble = (
                f"the tracking store {redact(self.tracker.uri)} did not take everything ({reason}); nothing is lost: "
                f"the record is in {self.folder.path}, and `wsl sync` delivers it"
            )
        else:
            self.tracker.backoff.worked()
            self._store_trouble = ""

    def _failed(self, error: Exception) -> None:
        self.tracker.backoff.failed()
        self._store_trouble = self._store_trouble or (
            f"the tracking store {redact(self.tracker.uri)} did not take a record: {redact(one_line(error))}"
        )
