"""A stack: trainers whose models take every step together."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, cast

import attrs
import torch
from torch import Tensor

from wsl_toolkit.data.inputs import Inputs, as_inputs
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.training.engine import EpochRecord, LogitEvaluation, Loop, Losses, Trainer, predict
from wsl_toolkit.training.plan import choose_plan
from wsl_toolkit.training.stacking.network import StackedNetwork
from wsl_toolkit.training.stacking.optimiser import StackedSGD
from wsl_toolkit.training.stacking.risk import StackedRisk

Outcome = EpochRecord | DivergedError
"""What an epoch came to for one model; one that diverged stays in the stack and disturbs nobody."""


class StackedInputs(Inputs):
    """Each member's inputs in its own order: an index is [B, M], a slab [B, M, …]."""

    def __init__(self, members: Sequence[Inputs]) -> None:
        self.members = members
        self._buffer: Tensor | None = None

    def __len__(self) -> int:
        return len(self.members[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example of all members."""
        return (len(self.members), *self.members[0].shape)

    def gather(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Return some examples of each member."""
        slab = next(self.slabs([index]))
        return slab.clone() if out is None else out.copy_(slab)

    def slabs(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """Return examples for each index in turn, in one buffer where each member's lie together."""
        for index in indices:
            if self._buffer is None or self._buffer.shape[1] < len(index):
                like = self.members[0].gather(index[:1, 0])
                self._buffer = like.new_empty(len(self.members), len(index), *like.shape[1:])
            slab = self._buffer[:, : len(index)]
            for member, own, part in zip(self.members, index.unbind(1), slab, strict=True):
                member.gather(own.contiguous(), out=part)
            yield slab.transpose(0, 1)


class Stack:
    """Trains all its trainers at once; each stays complete, so that it can be saved, evaluated or trained alone.

    Parameters, momentum and state are moved into stacked tensors, of which the trainers' own become views.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        first = trainers[0]
        self.trainers = trainers
        self.own_orders = not share_order(trainers)
        plan = choose_plan(
            first.model, first.inputs, first.plan.device, batch_size=first.batch_size, models=len(trainers)
        )
        parameters = [dict(trainer.model.named_parameters()) for trainer in trainers]
        self.network = StackedNetwork([trainer.model for trainer in trainers], own_inputs=self.own_orders)
        self.risk = StackedRisk([trainer.risk for trainer in trainers], own_orders=self.own_orders)
        self.optimizer = StackedSGD(
            self.network.stacked_parameters(), [trainer.optimizer for trainer in trainers], parameters
        )
        self._loop = Loop(
            model=self.network,
            risk=self.risk,
            inputs=StackedInputs([t.inputs for t in trainers]) if self.own_orders else first.inputs,
            optimizer=cast(Any, self.optimizer),
            batch_size=first.batch_size,
            plan=attrs.evolve(first.plan, threads=plan.threads),
        )

    def train_epoch(self) -> list[Outcome]:
        """Train one epoch; return what each trainer would have returned, with its share of the time."""
        start = time.perf_counter()
        losses = self._loop.run(self._next_order(), self.trainers[0].epoch)
        with warnings.catch_warnings():
            # Schedulers warn unless they have seen their own optimiser step; here another steps in its place.
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler", category=UserWarning)
            for trainer in self.trainers:
                trainer.end_epoch()
        self.optimizer.read_rates()
        seconds = (time.perf_counter() - start) / len(self.trainers)
        return self._outcomes(losses, seconds)

    def _next_order(self) -> Tensor:
        """Draw the members' next orders, [n, M], or the one that all share, [n]; all their streams move on."""
        first, *others = self.trainers
        if self.own_orders:
            return torch.stack([trainer.next_order() for trainer in self.trainers], dim=1)
        order = first.next_order()
        for trainer in others:
            trainer.shuffle.set_state(first.shuffle.get_state())
        return order

    def _outcomes(self, losses: Losses, seconds: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        evaluated = self._evaluate()
        for m, trainer in enumerate(self.trainers):
            own = Losses(per_step=losses.per_step[:, m], sizes=losses.sizes)
            try:
                risk = own.checked_mean(trainer.epoch) if trainer.nan_ends else float(own.mean())
            except DivergedError as error:
                outcomes.append(error)
                continue
            metrics = {"train/risk": risk, **{name: float(value) for name, value in evaluated[m].items()}}
            outcomes.append(EpochRecord(epoch=trainer.epoch, metrics=metrics, seconds=seconds))
        return outcomes

    def _evaluate(self) -> list[dict[str, Tensor]]:
        """Evaluate every trainer; one pass serves all that want logits on the same inputs."""
        evaluations = [trainer.evaluate for trainer in self.trainers]
        first = evaluations[0]
        if self.own_orders or not isinstance(first, LogitEvaluation) or not _same_inputs(evaluations):
            return [trainer.evaluate(trainer.model, trainer.risk) for trainer in self.trainers]
        logits = {name: predict(self.network, part).unbind(1) for name, part in first.inputs.items()}
        return [
            cast(LogitEvaluation, trainer.evaluate).score(
                {name: each[m] for name, each in logits.items()}, trainer.risk
            )
            for m, trainer in enumerate(self.trainers)
        ]


def share_order(trainers: Sequence[Trainer]) -> bool:
    """Return whether all visit the same examples in the same order, with the same candidate sets or others."""
    first = trainers[0]
    return all(
        trainer.inputs.same_as(first.inputs)
        and torch.equal(trainer.shuffle.get_state(), first.shuffle.get_state())
        and torch.equal(trainer.visited, first.visited)
        for trainer in trainers[1:]
    )


def _same_inputs(evaluations: Sequence[Any]) -> bool:
    first = evaluations[0]
    return all(
        isinstance(other, LogitEvaluation)
        and other.inputs.keys() == first.inputs.keys()
        and all(as_inputs(other.inputs[name]).same_as(as_inputs(first.inputs[name])) for name in first.inputs)
        for other in evaluations
    )
