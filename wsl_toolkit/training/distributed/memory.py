"""Checkpoints of a run on several ranks: rank 0 decides when, reads and writes; all take part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import torch

from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.engine import EpochRecord, Trainer
from wsl_toolkit.training.trial_memory import Past, TrialMemory


class SharedMemory(TrialMemory):
    """A trial's memory on several ranks; only rank 0 has one of its own."""

    def __init__(self, ranks: Ranks, own: TrialMemory | None = None) -> None:
        super().__init__()
        self.ranks = ranks
        self.own = own or TrialMemory()

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

    def restore(self, trainer: Trainer) -> Past:
        """Bring fresh trainers on all ranks to rank 0's saved moment."""
        if not self.ranks.tell(self.own.place is not None):
            return Past()
        if self.ranks.leads:
            past = self.own.restore(trainer)
        else:
            trainer.load_state_dict({})
            past = Past()
        records = self.ranks.tell([attrs.asdict(record) for record in past.records])
        seconds = self.ranks.tell(past.seconds)
        return Past(records=tuple(EpochRecord(**values) for values in records), seconds=seconds)

    def after_epoch(self, trainer: Trainer, records: Sequence[EpochRecord], seconds: float) -> None:
        """Write a checkpoint if rank 0 thinks that one is due."""
        kept = self.own.checkpoints
        if self.ranks.tell(kept is not None and kept.is_due(trainer.epoch)):
            self._save(trainer, records, seconds)

    def at_end(self, trainer: Trainer, records: Sequence[EpochRecord], seconds: float, *, finished: bool) -> None:
        """Write a last checkpoint."""
        if not self.ranks.tell(self.own.checkpoints is not None):
            return
        if self.ranks.leads:
            self.own.at_end(trainer, records, seconds, finished=finished)
        else:
            trainer.state_dict()

    def _save(self, trainer: Trainer, records: Sequence[EpochRecord], seconds: float) -> None:
        if self.ranks.leads:
            self.own._save(trainer, records, seconds)
        else:
            trainer.state_dict()
