"""What callbacks are told of a training, what they may log, and who calls them.

Clean labels are behind a wall: a callback is given neither them nor metrics that were computed from them, unless it
declares `reads_clean_labels`; and what has seen them says so in its name, and does not decide when a training ends.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
from torch import Tensor, nn

from wsl_toolkit.components import Backbone, Callback, Estimator
from wsl_toolkit.data.inputs import StreamedInputs
from wsl_toolkit.data.problem import CleanLabels, Problem
from wsl_toolkit.errors import CheckpointError, ConfigError, PluginError, WslError, one_line
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.metrics import METRICS

if TYPE_CHECKING:
    from wsl_toolkit.training.jobs import Trained

ORACLE = "oracle/"
"""What the name of a number begins with that a callback computed from clean labels."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*")
_PLAIN = (Tensor, str, bytes, int, float, bool, type(None))


@attrs.frozen(kw_only=True, eq=False)
class TrainingStart:
    """What a callback is told when a training begins: what the training itself may see."""

    seed: int
    epochs: int
    """How many epochs there are at most."""
    records: tuple[EpochRecord, ...]
    """The epochs that a resumed training has behind it."""
    estimator: Estimator
    backbone: Backbone
    training: Training
    model: nn.Module
    """The network that predicts, trained in place: look at it, and leave it as it is."""
    train_x: Tensor | StreamedInputs
    candidates: CandidateSets
    """The candidate sets of the training part."""
    validation_x: Tensor | StreamedInputs
    validation_candidates: CandidateSets | None
    test_x: Tensor | StreamedInputs
    num_classes: int
    input_shape: tuple[int, ...]
    clean: CleanLabels | None = None
    """True labels, for a callback that says that it reads them; None for all others."""


class Epoch:
    """An epoch as a callback sees it, with a way to add to its record."""

    def __init__(self, record: EpochRecord, logged: Logged, *, sees_clean_labels: bool) -> None:
        seen = record if sees_clean_labels else without_clean_labels(record)
        self.epoch = record.epoch
        self.seconds = record.seconds
        self.metrics: Mapping[str, float] = MappingProxyType(dict(seen.metrics))
        """What was measured; without what was computed from clean labels, unless the callback reads them."""
        self._logged = logged
        self._sees_clean_labels = sees_clean_labels

    def log(self, name: str, value: Any) -> None:
        """Add a number of your own to the epoch's record: it is kept on disk, in the history and in MLflow."""
        if self._sees_clean_labels and not str(name).startswith(ORACLE):
            raise PluginError(f"it reads clean labels, so that it must log {name!r} as {ORACLE}{name}")
        self._logged.add_metric(name, value)

    def log_figure(self, name: str, figure: Any) -> None:
        """Keep a matplotlib figure, as figures/<name>.png of a tracked run; the same name replaces an older one."""
        self._logged.add_figure(name, figure)


class Logged:
    """What the callbacks of a training add to one epoch."""

    def __init__(self, measured: Mapping[str, float]) -> None:
        self._measured = measured
        self.metrics: dict[str, float] = {}
        self.figures: dict[str, Any] = {}

    def add_metric(self, name: str, value: Any) -> None:
        """Take a number, if its name is free."""
        _check_name(name)
        if name in METRICS or name in self._measured or name in self.metrics:
            raise PluginError(f"the metric {name!r} is measured already: log under another name")
        try:
            self.metrics[name] = float(value)
        except (TypeError, ValueError):
            raise PluginError(f"the metric {name!r} must be a number, not {type(value).__name__}") from None

    def add_figure(self, name: str, figure: Any) -> None:
        """Take a figure."""
        _check_name(name)
        if not hasattr(figure, "savefig"):
            raise PluginError(f"the figure {name!r} must be a matplotlib figure, not {type(figure).__name__}")
        self.figures[name] = figure


class Callbacks:
    """The callbacks of one training: calls each, names the one that fails, and keeps clean labels from the blind."""

    def __init__(self, callbacks: Sequence[Any]) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                what = f"the class {callback.__name__}" if isinstance(callback, type) else repr(callback)
                raise ConfigError(f"a callback is an object of a subclass of wsl_toolkit.Callback, not {what}")
        self._all: tuple[Callback, ...] = tuple(callbacks)

    def __len__(self) -> int:
        return len(self._all)

    def start(self, about: TrainingStart, problem: Problem, states: Sequence[Mapping[str, Any]]) -> None:
        """Say that training begins; give each its state of the checkpoint, if there is one."""
        names = [label(callback) for callback in self._all]
        if states and [state["name"] for state in states] != names:
            raise CheckpointError(f"the callbacks changed since the checkpoint was written: they are {names} now")
        for place, callback in enumerate(self._all):
            if callback.reads_clean_labels:
                told = attrs.evolve(about, clean=problem.clean)
            else:
                told = attrs.evolve(about, records=tuple(map(without_clean_labels, about.records)))
            with at_work(callback, "on_train_start"):
                callback.on_train_start(told)
            if states:
                with at_work(callback, "load_state_dict"):
                    callback.load_state_dict(dict(states[place]["state"]))

    def epoch_end(self, record: EpochRecord) -> tuple[EpochRecord, dict[str, Any], str]:
        """Return the record with what was logged, the figures, and the name of the callback that ends it, if any."""
        logged = Logged(record.metrics)
        ended_by = ""
        for callback in self._all:
            epoch = Epoch(record, logged, sees_clean_labels=callback.reads_clean_labels)
            with at_work(callback, "on_epoch_end"):
                wish = callback.on_epoch_end(epoch)
                if wish and callback.reads_clean_labels:
                    raise PluginError("it reads clean labels, which must not decide when a training ends")
            if wish and not ended_by:
                ended_by = f"callback {label(callback)}"
        return attrs.evolve(record, metrics={**record.metrics, **logged.metrics}), logged.figures, ended_by

    def end(self, trained: Trained) -> None:
        """Say that training is complete."""
        blind = attrs.evolve(trained, records=tuple(map(without_clean_labels, trained.records)))
        for callback in self._all:
            with at_work(callback, "on_train_end"):
                callback.on_train_end(trained if callback.reads_clean_labels else blind)

    def state_dict(self) -> list[dict[str, Any]]:
        """Return what a checkpoint must hold for them to go on."""
        states = []
        for callback in self._all:
            with at_work(callback, "state_dict"):
                state = callback.state_dict()
                if not isinstance(state, dict) or (odd := _odd_value(state)) is not None:
                    what = type(state if not isinstance(state, dict) else odd).__name__
                    raise PluginError(f"a checkpoint holds tensors, numbers, text, lists and dicts, not {what}")
            states.append({"name": label(callback), "state": state})
        return states


def without_clean_labels(record: EpochRecord) -> EpochRecord:
    """Return a record without the metrics that were computed from clean labels."""
    kept = {name: value for name, value in record.metrics.items() if not _reads_clean_labels(name)}
    return attrs.evolve(record, metrics=kept)


def _reads_clean_labels(name: str) -> bool:
    metric = METRICS.get(name)
    return name.startswith(ORACLE) or (metric is not None and metric.reads == "clean labels")


def label(callback: Callback) -> str:
    """Return what a callback is called: its name, or its class's."""
    return type(callback).name or type(callback).__name__


@contextmanager
def at_work(callback: Callback, event: str) -> Iterator[None]:
    """Name the callback, whose it is, and the place, if it fails."""
    try:
        yield
    except Exception as error:
        if isinstance(error, WslError) and not isinstance(error, PluginError):
            raise
        what = str(error) if isinstance(error, PluginError) else f"{one_line(error)} (WSL_TRACEBACK=1 shows the way)"
        raise PluginError(f"callback {_whose(callback)} failed in {event}{_place(callback, error)}: {what}") from error


def _whose(callback: Callback) -> str:
    """Return a callback's name, and the plugin that it is from, if one registered it."""
    for entry in load_plugins().registry.entries():
        if entry.cls is type(callback):
            return f"{label(callback)!r} of plugin {entry.owner}"
    return repr(label(callback))


def _place(callback: Callback, error: BaseException) -> str:
    """Return the innermost place in the callback's own module."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__") == type(callback).__module__:
            return f", at {Path(frame.f_code.co_filename).name}:{line}"
    return ""


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PluginError(f"a name to log under is of letters, digits, '_', '-', '.' and '/', not {name!r}")


def _odd_value(value: Any) -> Any:
    """Return a value somewhere inside that a checkpoint cannot hold, or None."""
    if isinstance(value, dict):
        items = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple):
        items = list(value)
    else:
        return None if isinstance(value, _PLAIN) else value
    return next((odd for item in items if (odd := _odd_value(item)) is not None), None)
