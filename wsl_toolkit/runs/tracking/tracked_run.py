"""One run in the tracking store while it is at work: metrics go in batches, and a lost store is a note, not an end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wsl_toolkit.errors import TrackingError, WslError, one_line
from wsl_toolkit.runs.folder import RunFolder, TimedRecord, same_metrics
from wsl_toolkit.runs.tracking import outbox
from wsl_toolkit.runs.tracking.outbox import UNDELIVERED
from wsl_toolkit.runs.tracking.store import BATCH, Tracker, import_mlflow, insist, redact, speaking_to
from wsl_toolkit.system.files import write_atomically

FLUSH_SECONDS = 5.0
SHARE_OF_TIME = 0.05
"""Metrics are sent this often, but a slow store gets no more than this share of the time."""


class TrackedRun:
    """A run's folder and its run in the store; everything is on disk before the store hears of it."""

    def __init__(self, tracker: Tracker, folder: RunFolder) -> None:
        self.tracker = tracker
        self.folder = folder
        self.warning: str | None = None
        self.behind = False
        self._buffer: list[Any] = []
        self._next_flush = time.monotonic() + FLUSH_SECONDS
        self._has_model = False

    @property
    def run_id(self) -> str:
        """The run's id in the store, or a local one until the store has given one."""
        return self.folder.run_id

    def begin(self, *, offline_allowed: bool) -> None:
        """Make the run in the store; where the store must not be missing, its absence is an error."""
        if not offline_allowed:
            try:
                insist(lambda: outbox.create_run(self.tracker, self.folder))
            except Exception as error:
                raise TrackingError(
                    f"the tracking store {redact(self.tracker.uri)} does not take the run: {redact(one_line(error))}"
                ) from None
        elif self.tracker.line.is_open:
            self._attempt(lambda: insist(lambda: outbox.create_run(self.tracker, self.folder)))
        else:
            self.behind = True

    def reopen(self) -> None:
        """Go on with a run that was interrupted; the store first gets what it lacks."""
        try:
            outbox.catch_up(self.tracker, self.folder)
            self.tracker.client.update_run(self.run_id, status="RUNNING")
            outputs = self.tracker.client.get_run(self.run_id).outputs
        except Exception as error:
            raise TrackingError(
                f"run {self.run_id} cannot be resumed in {redact(self.tracker.uri)}: {redact(one_line(error))}"
            ) from None
        self._has_model = bool(outputs and outputs.model_outputs)

    # -------------------------------------------------------------- records

    def log_epoch(self, timed: TimedRecord) -> None:
        """Buffer an epoch's metrics; send them every few seconds."""
        metric = import_mlflow().entities.Metric
        self._buffer += [metric(key, float(v), timed.time, timed.record.epoch) for key, v in timed.metrics.items()]
        if time.monotonic() >= self._next_flush:
            self.flush()

    def log_summary(self, values: Mapping[str, float], step: int) -> None:
        """Record metrics of the whole run; the same ones again, after an interruption, keep their time."""
        before = self.folder.fact("summary")
        same = before is not None and before["step"] == step and same_metrics(before["values"], values)
        at = before["time"] if same else int(time.time() * 1000)
        self.folder.note(summary={"time": at, "step": step, "values": dict(values)})
        metric = import_mlflow().entities.Metric
        self._buffer += [metric(key, float(value), at, step) for key, value in values.items()]

    def flush(self) -> None:
        """Send what is buffered; keep it if the store does not answer."""
        start = time.monotonic()

        def send() -> None:
            while self._buffer:
                self.tracker.client.log_batch(self.run_id, metrics=self._buffer[:BATCH])
                del self._buffer[:BATCH]

        if self._buffer and self._attempt(send) is False:
            self._buffer.clear()  # it is on disk, from where `delivery` takes it
        now = time.monotonic()
        self._next_flush = now + max(FLUSH_SECONDS, (now - start) / SHARE_OF_TIME)

    def log_input(self, name: str, digest: str, context: str) -> None:
        """Record a dataset's name and digest, without its data, as an input of the run."""
        item = {"name": name, "digest": digest, "context": context}
        known = self.folder.fact("inputs", [])
        if item not in known:
            self.folder.note(inputs=[*known, item])
            self._attempt(lambda: outbox.send_inputs(self.tracker, self.run_id, [item]))

    def describe(self, text: str) -> None:
        """Replace the run's markdown description."""
        self.folder.note(description=text)
        self._attempt(lambda: self.tracker.client.set_tag(self.run_id, "mlflow.note.content", text))

    # ------------------------------------------------------------ artifacts

    def log_text(self, text: str, name: str) -> None:
        """Store a small text file with the run."""
        self._put(name, lambda path: write_atomically(path, text))

    def log_figure(self, figure: Any, name: str) -> None:
        """Store a figure with the run."""
        self._put(name, lambda path: figure.savefig(path))

    def log_file(self, path: Path) -> None:
        """Store a file with the run."""

        def link(target: Path) -> None:
            try:
                os.link(path, target)
            except OSError:
                shutil.copyfile(path, target)

        self._put(path.name, link)

    def _put(self, name: str, write: Callable[[Path], None]) -> None:
        """Lay a file down where deliveries wait, and deliver it."""
        target = self.folder.path / UNDELIVERED / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            write(target)
        except OSError as error:
            self.warning = self.warning or f"{target} cannot be written ({error.strerror or error})"
            return
        self._attempt(lambda: outbox.send_files(self.tracker, self.folder))

    def log_model(self, model: Any, example: Any) -> None:
        """Store the network with its signature, loadable by `mlflow.pytorch.load_model`."""
        if self._has_model:
            return
        mlflow = import_mlflow()
        import torch
        from mlflow.models import infer_signature

        with torch.no_grad():
            output = model(example)
        about = {
            "signature": infer_signature(example.numpy(), output.numpy()),
            "input_example": example.numpy(),
            "pip_requirements": [f"torch=={torch.__version__.split('+')[0]}"],
        }

        def send() -> None:
            with speaking_to(self.tracker.uri), mlflow.start_run(run_id=self.run_id):
                mlflow.pytorch.log_model(model, name="model", **about)

        if not self._attempt(send):
            place = self.folder.path / UNDELIVERED / "model"
            try:
                shutil.rmtree(place, ignore_errors=True)
                mlflow.pytorch.save_model(model, place, **about)
            except Exception as error:
                self.warning = self.warning or f"the model could not be kept in {place}: {one_line(error)}"

    # ------------------------------------------------------------------ end

    def finish(self, status: str, message: str = "") -> None:
        """End the run as FINISHED, FAILED or KILLED; on disk first."""
        self.flush()
        try:
            self.folder.leave(status, message)
        except WslError as error:
            self.warning = self.warning or str(error)  # a full disk: the next command finds that the process is gone
        if not self.behind and self._attempt(self._close):
            return
        self._last_attempt()

    def _close(self) -> None:
        if self.folder.fact("message"):
            self.tracker.client.set_tag(self.run_id, "mlflow.note.content", outbox.describe(self.folder))
        self.tracker.client.set_terminated(self.run_id, self.folder.fact("status"), end_time=self.folder.fact("ended"))
        self.folder.note(delivered=True)

    def _last_attempt(self) -> None:
        """Deliver all that is missing if the store is back."""
        try:
            self.tracker.check_answers()
            outbox.catch_up(self.tracker, self.folder)
        except Exception as error:
            self.tracker.line.failed()
            reason = str(error) if isinstance(error, WslError) else redact(one_line(error))
            self.warning = (
                f"the tracking store {redact(self.tracker.uri)} did not take everything ({reason}); nothing is lost: "
                f"the record is in {self.folder.path}, and `wsl sync` delivers it"
            )
        else:
            self.tracker.line.worked()
            self.warning = None

    def _attempt(self, action: Callable[[], Any]) -> bool:
        """Do something with the store if it seems to be there; return whether it worked."""
        offline = self.folder.is_offline and self.behind
        if offline or not self.tracker.line.is_open:
            self.behind = True
            return False
        try:
            action()
        except Exception as error:
            self.behind = True
            self.tracker.line.failed()
            self.warning = self.warning or (
                f"the tracking store {redact(self.tracker.uri)} did not take a record: {redact(one_line(error))}"
            )
            return False
        self.tracker.line.worked()
        return True
