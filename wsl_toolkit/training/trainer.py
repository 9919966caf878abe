"""A model in training: network, risk, optimiser, schedule and random streams, one epoch at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit import networks
from wsl_toolkit.data.inputs import Inputs, as_inputs
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.training.devices import DeviceStream
from wsl_toolkit.training.divergence import Origin
from wsl_toolkit.training.engine import EpochRecord, Loop, Losses, all_logits
from wsl_toolkit.training.evaluation import Evaluation
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.risk import Risk

Outcome = EpochRecord | DivergedError
"""An epoch's record, or the error of a model whose loss became NaN or infinite."""


def never() -> bool:
    """Do not stop."""
    return False


@attrs.frozen(kw_only=True)
class PartialEpoch:
    """An epoch that was interrupted: the order of its examples, the steps done, and the seconds that they took."""

    order: Tensor
    losses: Losses | None = None
    seconds: float = 0.0

    @property
    def steps(self) -> int:
        """How many steps are done."""
        return 0 if self.losses is None else len(self.losses.sizes)


class Trainer:
    """Trains one model on one risk, epoch by epoch; `state_dict()` is everything that the next epoch depends on."""

    processes = 1
    """How many processes train it together (see `training.distributed`)."""
    stacked = 1
    """How many models are trained as one stack with it, itself included (see `training.stacking`)."""

    def __init__(
        self,
        *,
        model: nn.Module,
        risk: Risk,
        inputs: Tensor | Inputs,
        optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None,
        batch_size: int,
        shuffle: torch.Generator,
        evaluate: Evaluation,
        plan: ExecutionPlan | None = None,
        stop: Callable[[], bool] = never,
        nan_ends: bool = True,
        planned: int = 1,
    ) -> None:
        self.model = model
        self.risk = risk
        self.plan = plan or ExecutionPlan()
        self.inputs = as_inputs(inputs, self.plan.channels_last)
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.evaluate = evaluate
        self.by_step = False
        """Whether the schedule is stepped after each batch, not after each epoch."""
        self.stop = stop
        self.nan_ends = nan_ends
        self.planned = planned
        """How many epochs it is to be trained, which decides whether a plan is worth measuring."""
        self.epoch = 0
        self.partial: PartialEpoch | None = None
        self.origin: Origin | None = None
        """Where its first loss that was not finite came from, once there is one."""
        # Examples whose set is full say nothing: they keep their place but are visited only if the estimator asks.
        self.visited = risk.visited()
        # Dropout and the like draw from torch's global generator; each trainer has its own copy of that stream,
        # which begins where the stream stands now, so that several can take turns.
        self._global_rng = torch.get_rng_state()
        self._device_rng = DeviceStream(next(model.parameters()).device)
        self._loop = Loop(
            model=model, risk=risk, inputs=self.inputs, optimizer=optimizer, batch_size=batch_size, plan=self.plan
        )

    def train_epoch(self, stop: Callable[[], bool] = never) -> list[Outcome] | None:
        """Train to the end of the epoch and evaluate; None if told to `stop` before, between two batches."""
        begun = self.partial or PartialEpoch(order=self.next_order())
        start = time.perf_counter() - begun.seconds
        with torch.random.fork_rng(devices=[]), self._device_rng.at_work():
            torch.set_rng_state(self._global_rng)
            losses = self._loop.run(begun.order, self.epoch, begun.losses, stop)
            self._global_rng = torch.get_rng_state()
        self.origin = self._loop.watch.origins.get(0)
        seconds = time.perf_counter() - start
        if losses.examples < len(begun.order):
            self.partial = PartialEpoch(order=begun.order, losses=losses, seconds=seconds)
            return None
        self.end_epoch()
        return [self.outcome(losses, seconds)]

    def outcome(self, losses: Losses, seconds: float, measured: dict[str, Tensor] | None = None) -> Outcome:
        """Return the record of the epoch that has just ended; `measured` is given where it was evaluated already."""
        try:
            risk = float(losses.mean())
            if self.nan_ends:
                risk = losses.checked_mean(self.epoch, self.risk.estimator.name, self.origin)
        except DivergedError as error:
            return error
        if measured is None:
            measured = self.evaluate(self.model, self.risk)
        metrics = {"train/risk": risk, **{name: float(value) for name, value in measured.items()}}
        if self.risk.estimator.reports():
            metrics |= self.risk.report()
        return EpochRecord(epoch=self.epoch, metrics=metrics, seconds=seconds)

    def epochs(self, until: int) -> Iterator[EpochRecord]:
        """Yield the record of each epoch up to and including `until`; end early when told to stop."""
        while self.epoch < until:
            outcomes = self.train_epoch(self.stop)
            if outcomes is None:
                return
            if isinstance(outcomes[0], DivergedError):
                raise outcomes[0]
            yield outcomes[0]

    @property
    def step(self) -> int:
        """How many steps of the next epoch are done already."""
        return 0 if self.partial is None else self.partial.steps

    def next_order(self) -> Tensor:
        """Draw the order in which the next epoch visits the examples."""
        return self.visited[torch.randperm(len(self.visited), generator=self.shuffle).to(self.visited.device)]

    def end_epoch(self) -> None:
        """Count the epoch, let the learning rate follow its schedule, and let the estimator look back if it wants."""
        self.partial = None
        if self.risk.estimator.looks_back():
            rng = torch.Generator()
            rng.set_state(self._global_rng)
            wanted = "all_logits" in self.risk.estimator.needs
            logits = all_logits(self.model, self.inputs, self.visited) if wanted else None
            self.risk.after_epoch(self.visited, self.epoch, torch.randint(2**53, (), generator=rng), logits)
            self._global_rng = rng.get_state()
        if isinstance(self.model, networks.Extended):
            self.model.after_epoch(self.risk.shared())
        if self.scheduler is not None and not self.by_step:
            self.scheduler.step()
        self.epoch += 1

    @property
    def steps_per_epoch(self) -> int:
        """How many steps an epoch has."""
        return sum(len(chunk.batches) for chunk in self._loop.cut(self.visited))

    def schedule_steps(self, scheduler: torch.optim.lr_scheduler.LRScheduler | None) -> None:
        """Follow a schedule from step to step."""
        self.scheduler, self.by_step = scheduler, scheduler is not None
        self._loop.after_step = None if scheduler is None else scheduler.step

    def follow(self, plan: ExecutionPlan) -> None:
        """Go on with the threads and chunks of a stack: a training has one plan from its beginning to its end."""
        self.plan = attrs.evolve(self.plan, **plan.choice(), source=plan.source)
        self._loop.plan = self.plan

    def own_tensors(self) -> None:
        """Give up shared memory: what a stack left as views of its tensors becomes the trainer's own.

        Fused optimisers walk through a tensor's memory as if it were dense, which a view of a stack is not.
        """
        self.stacked = 1
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
        for module in self.risk.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.clone(memory_format=torch.contiguous_format))
        for state in self.optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    state[key] = value.clone(memory_format=torch.contiguous_format)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next epoch depends on."""
        state = {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "risk": self.risk.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            "shuffle": self.shuffle.get_state(),
            "global_rng": self._global_rng,
            "device_rng": self._device_rng.state_dict(),
            "scaler": self._loop.scaler.state_dict() if self._loop.scaler else None,
            "under_way": attrs.asdict(self.partial) if self.partial else None,
        }
        own: dict[str, Any] = own_storage(state)
        return own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a saved moment."""
        self.epoch = state["epoch"]
        self.model.load_state_dict(state["model"])
        self.risk.load_state_dict(state["risk"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.shuffle.set_state(state["shuffle"])
        self._global_rng = state["global_rng"]
        self._device_rng.load_state_dict(state.get("device_rng", {}))  # checkpoints of release 0.1 have none
        if self._loop.scaler is not None and state.get("scaler"):
            self._loop.scaler.load_state_dict(state["scaler"])
        begun = state["under_way"]
        self.partial = PartialEpoch(**{**begun, "losses": Losses(**begun["losses"])}) if begun else None


def own_storage(value: Any) -> Any:
    """Return nested values whose tensors that are parts of larger ones are copied: a file would get all of those."""
    if isinstance(value, Tensor):
        partial = value.untyped_storage().nbytes() > value.nbytes
        return value.clone(memory_format=torch.contiguous_format) if partial else value
    if isinstance(value, dict):
        return {key: own_storage(item) for key, item in value.items()}
    return [own_storage(item) for item in value] if isinstance(value, list) else value
