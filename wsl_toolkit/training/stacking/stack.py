"""A stack: trainers whose models take every step together."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import State
from wsl_toolkit.data.inputs import Inputs, as_inputs
from wsl_toolkit.training.calibration import Subject, chosen
from wsl_toolkit.training.engine import Loop, Losses, predict
from wsl_toolkit.training.evaluation import LogitEvaluation
from wsl_toolkit.training.first_batch import Single
from wsl_toolkit.training.plan import ExecutionPlan, forward_operations
from wsl_toolkit.training.stacking.network import StackedNetwork
from wsl_toolkit.training.stacking.optimiser import stacked_optimiser
from wsl_toolkit.training.stacking.risk import StackedRisk
from wsl_toolkit.training.trainer import Outcome, PartialEpoch, Trainer, never


class StackedInputs(Inputs):
    """Each member's inputs in its own order: an index is [B, M], a chunk [B, M, …]."""

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
        chunk = next(self.chunks([index]))
        return chunk.clone() if out is None else out.copy_(chunk)

    def chunks(self, indices: Sequence[Tensor], *, ahead: bool = False) -> Iterator[Tensor]:
        """Return examples for each index in turn, in one buffer where each member's lie together."""
        for index in indices:
            if self._buffer is None or self._buffer.shape[1] < len(index):
                like = self.members[0].gather(index[:1, 0])
                self._buffer = like.new_empty(len(self.members), len(index), *like.shape[1:])
            chunk = self._buffer[:, : len(index)]
            for member, own, part in zip(self.members, index.unbind(1), chunk, strict=True):
                member.gather(own.contiguous(), out=part)
            yield chunk.transpose(0, 1)


class StackLoop(Loop):
    """The loop of a stack: each distinct estimator is looked at alone."""

    model: StackedNetwork
    risk: StackedRisk

    def _gradient_writer(self) -> Callable[[Tensor, Tensor], None] | None:
        return self.model.write_gradients if self.model.folds and self.risk.estimator.differentiates_itself else None

    def _places(self) -> Sequence[int]:
        return self.risk.distinct()

    def _single(self, place: int, logits: Tensor, mask: Tensor, state: State, common: State) -> Single:
        return self.risk.single(place, logits, mask, state, common)


class Stack:
    """Trains all its trainers at once; each stays complete, so that it can be saved, evaluated or trained alone.

    Parameters, momentum and state are moved into stacked tensors, of which the trainers' own become views.
    """

    def __init__(self, trainers: Sequence[Trainer], plan: ExecutionPlan | None = None) -> None:
        """Stack trainers; `plan` is that of a larger stack that they were part of."""
        first = trainers[0]
        self.trainers = trainers
        self.own_orders = not share_order(trainers)
        self._warned = False
        """Whether schedules have taken a first step, at which they may warn."""
        operations = forward_operations(first.model, first.inputs)
        parameters = [dict(trainer.model.named_parameters()) for trainer in trainers]
        self.network = StackedNetwork([trainer.model for trainer in trainers], own_inputs=self.own_orders)
        self.risk = StackedRisk([trainer.risk for trainer in trainers], own_orders=self.own_orders)
        self.optimizer = stacked_optimiser(
            self.network.stacked_parameters(), [trainer.optimizer for trainer in trainers], parameters
        )
        inputs = StackedInputs([t.inputs for t in trainers]) if self.own_orders else first.inputs
        self.plan = plan or self._plan(inputs, operations)
        """The threads and chunks of all its trainers, as long as one of them is trained."""
        self._loop = StackLoop(
            model=self.network,
            risk=self.risk,
            inputs=inputs,
            optimizer=cast(Any, self.optimizer),
            batch_size=first.batch_size,
            plan=self.plan,
        )
        if first.by_step:
            self._loop.after_step = self._follow_schedules
        for trainer in trainers:
            trainer.stacked = len(trainers)
            trainer.follow(self.plan)

    def _plan(self, inputs: Inputs, operations: float) -> ExecutionPlan:
        """Return how so many models are trained together; what was given or recorded for one holds for all."""
        first = self.trainers[0]
        if first.plan.source in ("given", "recorded"):
            return first.plan
        order = torch.stack([t.visited for t in self.trainers], dim=1) if self.own_orders else first.visited
        subject = Subject(
            model=self.network,
            risk=self.risk,
            inputs=inputs,
            visited=order,
            batch_size=first.batch_size,
            operations=operations,
            epochs=first.planned,
            models=len(self.trainers),
            loop=StackLoop,
        )
        return chosen(attrs.evolve(first.plan, **ExecutionPlan().choice(), source=""), subject)

    def train_epoch(self, stop: Callable[[], bool] = never) -> list[Outcome] | None:
        """Train to the end of the epoch; return what each trainer would have returned, with its share of the time.

        None if told to `stop` before: then each trainer has its own part of the interrupted epoch, to go on from.
        """
        begun = self._begun()
        start = time.perf_counter() - begun.seconds
        losses = self._loop.run(begun.order, self.trainers[0].epoch, begun.losses, stop)
        seconds = (time.perf_counter() - start) / len(self.trainers)
        for m, trainer in enumerate(self.trainers):
            trainer.origin = self._loop.watch.origins.get(m)
        if losses.examples < len(begun.order):
            for m, trainer in enumerate(self.trainers):
                order = begun.order[:, m] if self.own_orders else begun.order
                trainer.partial = PartialEpoch(order=order, losses=losses.of_model(m), seconds=seconds)
            return None
        with _another_steps():
            for trainer in self.trainers:
                trainer.end_epoch()
        self.optimizer.read_rates()
        measured = self._evaluate()
        return [t.outcome(losses.of_model(m), seconds, measured[m]) for m, t in enumerate(self.trainers)]

    def _follow_schedules(self) -> None:
        """Let the learning rates follow schedules that are stepped after each batch."""
        schedules = [trainer.scheduler for trainer in self.trainers if trainer.scheduler is not None]
        with nullcontext() if self._warned else _another_steps():
            for schedule in schedules:
                schedule.step()
        self._warned = True
        self.optimizer.read_rates()

    def _begun(self) -> PartialEpoch:
        """Return the epoch that was interrupted, or a new one: orders [n, M], or the one that all share, [n]."""
        parts = [trainer.partial for trainer in self.trainers if trainer.partial is not None]
        if not parts:
            return PartialEpoch(order=self._next_order())
        order = torch.stack([part.order for part in parts], dim=1) if self.own_orders else parts[0].order
        known = [part.losses for part in parts if part.losses is not None]
        losses = Losses(per_step=torch.stack([each.per_step for each in known], dim=1), sizes=known[0].sizes)
        return PartialEpoch(order=order, losses=losses, seconds=sum(part.seconds for part in parts))

    def _next_order(self) -> Tensor:
        """Draw the members' next orders, [n, M], or the one that all share, [n]; all their streams move on."""
        first, *others = self.trainers
        if self.own_orders:
            return torch.stack([trainer.next_order() for trainer in self.trainers], dim=1)
        order = first.next_order()
        for trainer in others:
            trainer.shuffle.set_state(first.shuffle.get_state())
        return order

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


@contextmanager
def _another_steps() -> Iterator[None]:
    """Silence schedules, which warn unless they have seen their own optimiser step: here another steps in its place."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler", category=UserWarning)
        yield


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
