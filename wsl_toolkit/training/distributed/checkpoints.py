"""Checkpoints of a run on several ranks: rank 0 decides when, reads and writes; all take part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import torch

from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.stopping import BestEpoch
from wsl_toolkit.training.trainer import Trainer
from wsl_toolkit.training.trial_checkpoints import Past, TrialCheckpoints


class SharedCheckpoints(TrialCheckpoints):
    """A training's checkpoints on several ranks; only rank 0 has files."""

    def __init__(self, ranks: Ranks, own: TrialCheckpoints | None = None) -> None:
        super().__init__()
        self.ranks = ranks
        self.own = own or TrialCheckpoints()

    @property
    def past(self) -> Past:
        """What rank 0's checkpoint says of the time before; the other ranks know nothing of it yet."""
        return self.own.past

    @property
    def recorded(self) -> dict[str, Any] | None:
        """What rank 0's checkpoint was made with; the other ranks are told."""
        return self.own.recorded

    @contextmanager
    def same_threads(self) -> Iterator[None]:
        """Use as many threads as when the checkpoint was made, on every rank."""
        before = torch.get_num_threads()
        with self.own.same_threads():
            torch.set_num_threads(self.ranks.tell(torch.get_num_threads()))
            try:
                yield
            finally:
                torch.set_num_threads(before)

    def restore(self, trainer: Trainer, best: BestEpoch | None = None) -> Past:
        """Bring fresh trainers on all ranks to rank 0's saved moment."""
        if not self.ranks.tell(self.own.place is not None):
            return Past()
        if self.ranks.leads:
            past = self.own.restore(trainer, best)
        else:
            trainer.load_state_dict({})
            past = Past()
        records = self.ranks.tell([attrs.asdict(record) for record in past.records])
        seconds, ended_by = self.ranks.tell((past.seconds, past.ended_by))
        return Past(
            records=tuple(EpochRecord(**values) for values in records),
            seconds=seconds,
            ended_by=ended_by,
            callbacks=past.callbacks,
        )

    def compare_execution(self, trainer: Trainer) -> None:
        """Say on rank 0 what differs from when the checkpoint was made."""
        self.own.compare_execution(trainer)

    def is_due(self, trainer: Trainer) -> bool:
        """Return whether rank 0 thinks that a checkpoint is due."""
        due: bool = self.ranks.tell(self.own.is_due(trainer))
        return due

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
        """Write rank 0's checkpoint, to which all ranks give their rows."""
        if not self.ranks.tell(self.own.files is not None):
            return None
        if self.ranks.leads:
            return self.own.save(trainer, records, seconds, best, more, finished=finished)
        trainer.state_dict()
        return None
