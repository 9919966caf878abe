"""A training's whole state in a checkpoint and back: what is trained, every random stream, the metrics, how it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import nn

from wsl_toolkit.errors import CheckpointError, one_line
from wsl_toolkit.plugins.code_identity import Code, changes
from wsl_toolkit.training.checkpoints import Checkpoints, Place, random_streams, restore_random_streams
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.stopping import BestEpoch
from wsl_toolkit.training.trainer import Trainer

FORMAT = 1
MOST_THREADS = 2**16


@attrs.frozen(kw_only=True)
class Past:
    """The epochs that a resumed training has behind it, and how long they took."""

    records: tuple[EpochRecord, ...] = ()
    seconds: float = 0.0
    ended_by: str = ""
    """Who ended it, if it is over."""
    callbacks: tuple[dict[str, Any], ...] = ()
    """What its callbacks wanted to be kept."""


class TrialCheckpoints:
    """Saves a training now and then, and restores it; without a place for files it saves nothing.

    `identity` names what the training depends on (configuration, data, candidate sets) by its content: a checkpoint of
    anything else is refused, with the name of what changed.
    """

    def __init__(
        self,
        files: Checkpoints | None = None,
        identity: Mapping[str, str] | None = None,
        note: Callable[[str], None] = lambda text: None,
        *,
        last: bool = True,
        codes: Sequence[Code] = (),
    ) -> None:
        self.files = files
        self.codes = codes
        """The code that trains, last, and other code whose checkpoints may be gone on with; empty: any may."""
        self.last = last
        """Whether a training that is finished leaves a last checkpoint."""
        self.identity = dict(identity or {})
        self.note = note
        self._saved = self._read()

    def _read(self, at: Place | None = None) -> dict[str, Any] | None:
        """Return the newest checkpoint, or the one at a place, if it is one of this very training."""
        saved = self.files.newest(at) if self.files else None
        if saved is None:
            return None
        if saved.get("format") != FORMAT:
            raise CheckpointError(
                f"the checkpoint was written by another version of the toolkit (format {saved.get('format')!r}, this "
                f"one reads {FORMAT}): resume it with that version, or start a new run"
            )
        _check_form(saved)
        for name, value in self.identity.items():
            if saved["identity"].get(name) != value:
                raise CheckpointError(f"the {name} changed since the checkpoint was written: start a new run")
        code = saved.get("code")  # release 0.1 did not say
        if code and self.codes and code not in self.codes:
            what = "; ".join(changes(code, self.codes[-1]))
            raise CheckpointError(
                f"the checkpoint was written by other code ({what}): install what it was written by, or start a new run"
            )
        return saved

    def go_back(self, place: Place | None) -> None:
        """Take the checkpoint of an earlier place, or none: models of a stack go on from where all were saved."""
        if self.place != place:
            self._saved = None if place is None else self._read(place)

    @property
    def past(self) -> Past:
        """What the checkpoint says of the time before."""
        if self._saved is None:
            return Past()
        records = tuple(EpochRecord(**values) for values in self._saved["records"])
        return Past(
            records=records,
            seconds=self._saved["seconds"],
            ended_by=self._saved.get("ended_by", ""),
            callbacks=tuple(self._saved.get("callbacks", ())),
        )

    @property
    def place(self) -> Place | None:
        """Where the checkpoint was made."""
        return Place(epoch=self._saved["epoch"], step=self._saved["step"]) if self._saved else None

    @property
    def recorded(self) -> dict[str, Any] | None:
        """The threads and chunks that the checkpoint was made with, if there is one."""
        if self._saved is None:
            return None
        return {
            name: self._saved["execution"].get(f"plan.{name}", value)
            for name, value in ExecutionPlan().choice().items()
        }

    @contextmanager
    def same_threads(self) -> Iterator[None]:
        """Use as many threads as when the checkpoint was made: sums in another order differ in their last bits."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._saved["execution"]["threads"] if self._saved else before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def restore(self, trainer: Trainer, best: BestEpoch | None = None) -> Past:
        """Bring a fresh trainer to the saved moment."""
        saved = self._saved
        if saved is None:
            return Past()
        try:
            trainer.load_state_dict(saved["trainer"])
            if best is not None and saved.get("best") is not None:
                best.load_state_dict(saved["best"])
            restore_random_streams(saved["streams"])
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise CheckpointError(
                f"the checkpoint does not fit this network or method ({one_line(error)[:200]}): the toolkit or a "
                "plugin changed since it was written"
            ) from None
        return self.past

    def restore_model(self, model: nn.Module) -> nn.Module:
        """Give a network the weights that the training left it with, and nothing else: no random stream is touched."""
        if self._saved is None:
            raise CheckpointError("there is no checkpoint to take the model from")
        best = self._saved.get("best")
        kept = best["model"] if best is not None and best.get("model") is not None else None
        try:
            model.load_state_dict(self._saved["trainer"]["model"] if kept is None else kept)
        except (RuntimeError, LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"the checkpoint does not fit this network ({one_line(error)[:200]}): the toolkit or a plugin changed "
                "since it was written"
            ) from None
        return model

    def compare_execution(self, trainer: Trainer) -> None:
        """Say what differs from when the checkpoint was made, where bits depend on it."""
        if self._saved is None:
            return
        plan = {f"plan.{key}": value for key, value in ExecutionPlan().as_dict().items()}  # what has come since
        then = {**plan, "ranks": 1, "stacked models": 1, **self._saved["execution"]}
        for name, value in _execution(trainer).items():
            if then.get(name) != value:
                self.note(
                    f"{name} was {then.get(name)} and is {value} now: the run goes on to the same numbers up to "
                    "rounding, not to the same bits"
                )

    def is_due(self, trainer: Trainer) -> bool:
        """Return whether a checkpoint is to be written after the epoch that has just ended."""
        return self.files is not None and self.files.is_due(trainer.epoch, trainer.stacked)

    def save(
        self,
        trainer: Trainer,
        records: Sequence[EpochRecord],
        seconds: float,
        best: BestEpoch | None = None,
        more: Mapping[str, Any] | None = None,
        *,
        finished: bool = False,
    ) -> Path | None:
        """Write a checkpoint: to go on from, or, of a training that is `finished`, in the place of all others."""
        if self.files is None or (finished and not self.last):
            return None
        state = {
            "format": FORMAT,
            "identity": self.identity,
            "code": dict(self.codes[-1]) if self.codes else {},
            "epoch": trainer.epoch,
            "step": trainer.step,
            "trainer": trainer.state_dict(),
            "best": best.state_dict() if best else None,
            "streams": random_streams(),
            "records": [attrs.asdict(record) for record in records],
            "seconds": seconds,
            "execution": _execution(trainer),
            **(more or {}),
        }
        path = self.files.save(Place(epoch=trainer.epoch, step=trainer.step), state)
        if finished:
            self.files.keep_only(path)
        return path


def _check_form(saved: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that does not hold what all hold; whether its tensors fit is known when they are used."""
    kinds: dict[str, tuple[type, ...]] = {
        "identity": (dict,), "epoch": (int,), "step": (int,), "trainer": (dict,), "best": (dict, type(None)),
        "streams": (dict,), "records": (list,), "seconds": (float, int), "execution": (dict,),
    }  # fmt: skip
    more: dict[str, tuple[type, ...]] = {"code": (dict,), "ended_by": (str,), "callbacks": (list, tuple)}
    wrong = [name for name, known in kinds.items() if type(saved.get(name)) not in known]
    wrong += [name for name, known in more.items() if name in saved and type(saved[name]) not in known]
    try:
        for values in () if wrong else saved["records"]:
            record = EpochRecord(**values)
            if type(record.metrics) is not dict:  # a tensor has `values` as well
                raise TypeError(record)
            numbers = [record.epoch, record.seconds, *record.metrics.values()]
            if not all(type(number) in (int, float) for number in numbers):
                raise ValueError(record)
    except (TypeError, ValueError, AttributeError):
        wrong.append("records")
    if not wrong and not 1 <= _whole(saved["execution"].get("threads")) <= MOST_THREADS:
        wrong.append("execution")
    # They are compared, which tensors cannot be.
    plain = (str, int, float, bool, type(None))
    tables = () if wrong else ("identity", "execution", "code")
    wrong += [name for name in tables if not all(type(each) in plain for each in saved.get(name, {}).values())]
    if wrong:
        raise CheckpointError(f"the checkpoint is damaged: its {wrong[0]!r} is not what it should be: start a new run")


def _whole(value: Any) -> int:
    return value if type(value) is int else -1


def _execution(trainer: Trainer) -> dict[str, Any]:
    """Return what the bits of the result depend on beside the program and its input."""
    plan = {f"plan.{key}": value for key, value in trainer.plan.as_dict().items()}
    return {
        **plan,
        "threads": torch.get_num_threads(),
        "ranks": trainer.processes,
        "stacked models": trainer.stacked,
        "torch": str(torch.__version__),
    }
