"""What the trials of a run share, and how a run is opened and truthfully closed, on disk and in the store."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from wsl_toolkit.components import Backbone, Callback, Estimator, Generator, Transform
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import InterruptedRunError, TrackingError, WslError, one_line
from wsl_toolkit.plugins.code_identity import provenance
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs.folder import FAILED, FINISHED, KILLED, RUNNING, RunFolder
from wsl_toolkit.runs.result import RunResult
from wsl_toolkit.runs.tracking.store import RunFacts, Tracker, redact
from wsl_toolkit.runs.tracking.tracked_run import TrackedRun
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.config import RunConfig
from wsl_toolkit.training.distributed import Ranks
from wsl_toolkit.training.engine import EpochRecord


class Listener(Protocol):
    """Whoever shows a run's progress."""

    def features(self, done: int, of: int) -> None:
        """A frozen network has seen so many examples; not called where its features are known."""

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """A trial begins."""

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """An epoch of a trial ended; several trials may be trained at once."""

    def result(self, result: RunResult) -> None:
        """The numbers are known; figures and the model are yet to be written."""

    def note(self, text: str) -> None:
        """Something that the user should know, said once."""


@attrs.frozen(kw_only=True)
class Parts:
    """The configured components of a run; there is no generator where the data has candidate sets."""

    data: Data
    generator: Generator | None
    estimator: Estimator
    backbone: Backbone
    transform: Transform | None = None


@attrs.frozen(kw_only=True)
class Session:
    """What all trials of a run share."""

    config: RunConfig
    registry: Registry
    tracker: Tracker
    listener: Listener
    parts: Parts
    stop: StopRequest
    checkpoint_every: int | None
    data_dir: Path
    ranks: Ranks | None = None
    """The processes that train together, of which this is the first; None: it is alone."""
    callbacks: Callable[[], Sequence[Callback]] = list
    """Makes the callbacks of a trial."""
    said: set[str] = attrs.field(factory=set)

    def note_once(self, kind: str, text: str) -> None:
        """Say something the first time only."""
        if kind not in self.said:
            self.said.add(kind)
            self.listener.note(text)


@contextlib.contextmanager
def tracked_in(session: Session, facts: RunFacts, config: RunConfig, folder: RunFolder | None) -> Iterator[TrackedRun]:
    """Open a run and its folder, and end it truthfully: FINISHED, KILLED by the user, or FAILED with its message."""
    tracked = _reopen(session, facts, folder) if folder is not None else _begin(session, facts, config)
    try:
        yield tracked
    except InterruptedRunError as error:
        tracked.finish(KILLED, str(error))
        raise error.advise(f"go on with: wsl run --resume {tracked.run_id}{_store_option(session.tracker)}") from None
    except KeyboardInterrupt:
        tracked.finish(KILLED, "stopped by Ctrl-C")
        raise
    except BaseException as error:
        tracked.finish(FAILED, redact(str(error) if isinstance(error, WslError) else one_line(error)))
        raise
    else:
        tracked.finish(FINISHED)
    finally:
        if tracked.warning:
            session.listener.note(tracked.warning)


def _gone_on(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return a resumed run's tags: where the code is another by now, who it was made by first and who goes on."""
    tags = dict(before)
    for name, provider in now.items():
        known = tags.get(name, "")
        if known != provider and not known.endswith(f", then {provider}"):
            tags[name] = f"{known}, then {provider}" if known else provider
    return tags


def _store_option(tracker: Tracker) -> str:
    """Return the option that names the store again, where neither the default nor the environment does."""
    if tracker.label is None or os.environ.get("MLFLOW_TRACKING_URI") == tracker.uri:
        return ""
    return f" --tracking-uri {tracker.label}"


def _begin(session: Session, facts: RunFacts, config: RunConfig) -> TrackedRun:
    folder = RunFolder.new(session.tracker.home)
    try:
        folder.enter()
        folder.write_config(config.to_toml())  # before run.json, by which a folder becomes one that can be resumed
        folder.note(
            **attrs.asdict(facts),
            status=RUNNING,
            started=int(time.time() * 1000),
            experiment=session.tracker.experiment,
            store=session.tracker.label,
            data_dir=str(session.data_dir),
        )
        tracked = TrackedRun(session.tracker, folder)
        # The trials of a run that is under way must not be lost to a server that is away for a while.
        tracked.begin(offline_allowed=facts.parent is not None)
    except TrackingError as error:
        # The store may have made the run although it did not say so: keep the folder until that is known.
        folder.note(refused=True)
        folder.leave(FAILED, str(error))
        raise
    except BaseException:
        folder.discard()
        raise
    tracked.log_text(config.to_toml(), "config.toml")
    return tracked


def _reopen(session: Session, facts: RunFacts, folder: RunFolder) -> TrackedRun:
    folder.enter()
    tags = _gone_on(folder.fact("tags", {}), provenance(facts.codes[-1]))
    codes = [dict(code) for code in facts.codes]
    folder.note(status=RUNNING, message="", resumed=folder.fact("resumed", 0) + 1, codes=codes, tags=tags)
    tracked = TrackedRun(session.tracker, folder)
    try:
        tracked.reopen()
    except BaseException as error:
        folder.leave(KILLED, one_line(error))
        raise
    return tracked
