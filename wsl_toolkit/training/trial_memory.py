"""A trial's whole state in a checkpoint and back: what is trained, every random stream, the metrics, and how it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import torch

from wsl_toolkit.errors import CheckpointError, one_line
from wsl_toolkit.training.checkpoints import Checkpoints, Place, random_streams, restore_random_streams
from wsl_toolkit.training.engine import EpochRecord, Trainer

FORMAT = 1


@attrs.frozen(kw_only=True)
class Past:
    """What a trial has behind it."""

    records: tuple[EpochRecord, ...] = ()
    seconds: float = 0.0


class TrialMemory:
    """Saves a trial now and then, and restores it; one without checkpoints remembers nothing.

    `identity` names what the trial depends on (configuration, data, candidate sets) by its content: a checkpoint of
    anything else is refused, with the name of what changed.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None = None,
        identity: Mapping[str, str] | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.checkpoints = checkpoints
        self.identity = dict(identity or {})
        self.note = note
        self._saved = self._newest()

    def _newest(self) -> dict[str, Any] | None:
        """Return the newest checkpoint, if it is one of this very trial."""
        saved = self.checkpoints.newest() if self.checkpoints else None
        if saved is None:
            return None
        if saved.get("format") != FORMAT:
            raise CheckpointError(
                f"the checkpoint was written by another version of the toolkit (format {saved.get('format')!r}, this "
                f"one reads {FORMAT}): resume it with that version, or start a new run"
            )
        for name, value in self.identity.items():
            if saved["identity"].get(name) != value:
                raise CheckpointError(f"the {name} changed since the checkpoint was written: start a new run")
        return saved

    @property
    def past(self) -> Past:
        """What the checkpoint says of the time before."""
        if self._saved is None:
            return Past()
        records = tuple(EpochRecord(**values) for values in self._saved["records"])
        return Past(records=records, seconds=self._saved["seconds"])

    @property
    def place(self) -> Place | None:
        """Where the checkpoint was made."""
        return Place(epoch=self._saved["epoch"], step=self._saved["step"]) if self._saved else None

    @contextmanager
    def same_threads(self) -> Iterator[None]:
        """Use as many threads as when the checkpoint was made: sums in another order differ in their last bits."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._saved["execution"]["threads"] if self._saved else before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def restore(self, trainer: Trainer) -> Past:
        """Bring a fresh trainer to the saved moment."""
        saved = self._saved
        if saved is None:
            return Past()
        try:
            trainer.load_state_dict(saved["trainer"])
            restore_random_streams(saved["streams"])
        except (RuntimeError, ValueError, KeyError, TypeError, IndexError) as error:
            raise CheckpointError(
                f"the checkpoint does not fit this network or method ({one_line(error)[:200]}): the toolkit or a "
                "plugin changed since it was written"
            ) from None
        then = {"ranks": 1, **saved["execution"]}
        for name, value in _execution(trainer).items():
            if then.get(name) != value:
                self.note(
                    f"{name} was {then.get(name)} and is {value} now: the run goes on to the same numbers up to "
                    "rounding, not to the same bits"
                )
        return self.past

    def after_epoch(self, trainer: Trainer, records: Sequence[EpochRecord], seconds: float) -> None:
        """Write a checkpoint if one is due."""
        if self.checkpoints is not None and self.checkpoints.is_due(trainer.epoch):
            self._save(trainer, records, seconds)

    def at_end(self, trainer: Trainer, records: Sequence[EpochRecord], seconds: float, *, finished: bool) -> None:
        """Write a last checkpoint: of a run that stops, to go on from; of one that is done, instead of all others."""
        if self.checkpoints is None:
            return
        path = self._save(trainer, records, seconds)
        if finished:
            self.checkpoints.keep_only(path)

    def _save(self, trainer: Trainer, records: Sequence[EpochRecord], seconds: float) -> Any:
        assert self.checkpoints is not None
        state = {
            "format": FORMAT,
            "identity": self.identity,
            "epoch": trainer.epoch,
            "step": trainer.step,
            "trainer": trainer.state_dict(),
            "streams": random_streams(),
            "records": [attrs.asdict(record) for record in records],
            "seconds": seconds,
            "execution": _execution(trainer),
        }
        return self.checkpoints.save(Place(epoch=trainer.epoch, step=trainer.step), state)


def _execution(trainer: Trainer) -> dict[str, Any]:
    """Return what the bits of the result depend on beside the program and its input."""
    plan = {f"plan.{key}": value for key, value in trainer.plan.as_dict().items()}
    return {**plan, "threads": torch.get_num_threads(), "ranks": trainer.processes, "torch": str(torch.__version__)}
