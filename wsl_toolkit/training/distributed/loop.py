"""The training loop on several ranks: the batches of a single process, of which each rank computes its own examples.

Where an estimator's objective is a mean over examples, each rank adds up its own and only gradients travel. One that
looks at a whole batch (or keeps shared state) gets it: logits, sets and state rows are brought together, every rank
computes the same objective, and each differentiates it with respect to its own logits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.divergence import KINDS, Origin, earliest
from wsl_toolkit.training.engine import Batch, Chunk, Loop, Losses, Seen
from wsl_toolkit.training.risk import WEIGHT


class ParallelLoop(Loop):
    """A rank's share of the loop; orders and batches are global, everything else is this rank's own."""

    def __init__(self, *, ranks: Ranks, **parts: Any) -> None:
        super().__init__(**parts)
        self.ranks = ranks
        self._together = wants_whole_batches(self.risk.estimator)
        sizes = [parameter.numel() for parameter in self._parameters]
        # All gradients travel in one message, and with them, in the last place, the wish to stop.
        self._message = torch.zeros(sum(sizes) + 1, device=self._parameters[0].device)
        self._slots = [
            slot.view_as(parameter)
            for slot, parameter in zip(self._message[:-1].split(sizes), self._parameters, strict=True)
        ]
        self._used: list[bool] | None = None
        self._wish: Callable[[], bool] = lambda: False
        self._stopping = False

    def run(
        self, order: Tensor, epoch: int, begun: Losses | None = None, stop: Callable[[], bool] = lambda: False
    ) -> Losses:
        """Visit the examples once; all ranks break off after the same step, whichever of them was asked to."""
        self._wish, self._stopping = stop, False
        losses = super().run(order, epoch, begun, lambda: self._stopping)
        if not bool(torch.isfinite(losses.per_step).all()):
            self._agree_on_origin()
        return losses

    def _agree_on_origin(self) -> None:
        """Let every rank know what the rank found that met the first loss that was not finite."""
        own = self.watch.origins.get(0)
        told = torch.zeros(self.ranks.count, 4)
        if own is not None:
            told[self.ranks.rank] = torch.tensor([1, KINDS.index(own.kind), own.step, own.largest])
        found = [
            Origin(kind=KINDS[int(kind)], step=int(step), largest=largest)
            for there, kind, step, largest in self.ranks.add(told).tolist()
            if there
        ]
        origin = earliest(found)
        if origin is not None:
            self.watch.origins[0] = origin

    def cut(self, order: Tensor) -> list[Chunk]:
        """Cut the global order as a single process would, and keep this rank's examples."""
        return [self._own_part(chunk) for chunk in super().cut(order)]

    def _own_part(self, chunk: Chunk) -> Chunk:
        mine = chunk.index % self.ranks.count == self.ranks.rank
        batches = [
            Batch(size=len(places), whole=batch.whole, places=places)
            for batch, own in zip(chunk.batches, mine.split([batch.size for batch in chunk.batches]), strict=True)
            for places in [own.nonzero().flatten()]
        ]
        return Chunk(index=chunk.index[mine] // self.ranks.count, batches=batches)

    def _total(self, per_step: Tensor) -> Tensor:
        return self.ranks.add(per_step)

    def _takes_part(self, batch: Batch) -> bool:
        return self._together or batch.size > 0

    def _look(self, inputs: Tensor, mask: Tensor, rows: State, batch: Batch) -> Seen:
        """Return what the objective is computed from, of this rank's part or of the whole batch."""
        with _settled(self.model) if batch.size < 2 else contextlib.nullcontext():
            own = super()._look(inputs, mask, rows, batch)
        if not self._together:
            return own
        return Seen(
            logits=self._whole(own.logits, batch),
            mask=self._whole(own.mask.byte(), batch).bool(),
            state={name: self._whole(value, batch) for name, value in own.state.items()},
        )

    def _whole(self, part: Tensor, batch: Batch) -> Tensor:
        """Return the whole batch's rows, of which only this rank's own are differentiated."""
        assert batch.places is not None
        whole = part.new_zeros(batch.whole, *part.shape[1:], requires_grad=False)
        self.ranks.add(whole.index_copy_(0, batch.places, part.detach()))
        return whole.index_copy(0, batch.places, part) if part.requires_grad else whole

    def _gradient_writer(self) -> None:
        """Torch differentiates: a rank's part of a batch is no batch of its own."""

    def _objective(self, seen: Seen, common: State, batch: Batch) -> Tensor:
        if self._together:
            return super()._objective(seen, common, batch)
        losses: Tensor = self.risk.estimator.loss(seen.logits, seen.mask, {**common, **seen.state})
        if self.risk.weighted:
            losses = losses * seen.state[WEIGHT]
        return losses.sum() / batch.whole

    def _update(self, seen: Seen, common: State, batch: Batch) -> State:
        new = super()._update(seen, common, batch)
        if not self._together:
            return new
        assert batch.places is not None
        return {name: value if name in common else value[batch.places] for name, value in new.items()}

    def _counted(self, objective: Tensor) -> Tensor:
        """A whole batch's objective is the same everywhere: rank 0 alone counts it."""
        return objective if self.ranks.leads or not self._together else torch.zeros_like(objective)

    def _descend(self) -> None:
        """Add up the gradients of all ranks, then step: every rank takes the same step."""
        if self._used is None:
            have = torch.tensor([float(parameter.grad is not None) for parameter in self._parameters])
            self._used = self.ranks.add(have).bool().tolist()
        for parameter, slot in zip(self._parameters, self._slots, strict=True):
            slot.zero_() if parameter.grad is None else slot.copy_(parameter.grad)
        self._message[-1] = float(self._wish())
        self.ranks.add(self._message)
        for parameter, slot, used in zip(self._parameters, self._slots, self._used, strict=True):
            parameter.grad = slot if used else None  # what no loss depends on is not decayed either
        self._stopping = bool(self._message[-1] > 0)
        super()._descend()


def wants_whole_batches(estimator: Any) -> bool:
    """Return whether an estimator must see a batch as a whole: its objective is no mean, or it keeps shared state."""
    return type(estimator).objective is not Estimator.objective or updates_shared_state(estimator)


def updates_shared_state(estimator: Any) -> bool:
    """Return whether updates may write what no single example owns."""
    return estimator.update_when != "never" and type(estimator).init_shared is not Estimator.init_shared


def check_spreads(estimator: Any) -> None:
    """Refuse an estimator that several ranks would compute otherwise than one."""
    why = None
    if estimator.reports() and type(estimator).init_state is not Estimator.init_state:
        why = "reports on the state of all examples at once after each epoch"
    elif estimator.looks_back():
        why = "looks at all examples at once after each epoch"
    elif wants_whole_batches(estimator) and (bound := estimator.needs_that_do_not("splits")):
        why = f"works on whole batches and needs {', '.join(bound)}"
    if why:
        raise ConfigError(f"estimator {estimator.name} cannot be trained on several ranks: it {why}. Run it on one")


@contextlib.contextmanager
def _settled(model: nn.Module) -> Iterator[None]:
    """Let batch norm use its running statistics: a single example, or none, has none of its own."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training]
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()
