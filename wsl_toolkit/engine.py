"""The one training loop; knows neither MLflow nor pluggy nor click, and never sees a true label."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit import networks
from wsl_toolkit.components import State
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.execution import ExecutionPlan
from wsl_toolkit.inputs import Inputs, as_inputs
from wsl_toolkit.risk import Risk


@attrs.frozen(kw_only=True)
class EpochRecord:
    """What an epoch came to."""

    epoch: int
    metrics: dict[str, float]
    seconds: float


Evaluation = Callable[[nn.Module, Risk], dict[str, Tensor]]


class Trainer:
    """Trains one model on one risk; `epochs()` yields a record each, and `state_dict()` is all that it knows."""

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
    ) -> None:
        self.plan = plan or ExecutionPlan()
        self.model = model
        self.risk = risk
        self.inputs = as_inputs(inputs, self.plan.channels_last)
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.evaluate = evaluate
        self.epoch = 0
        # Examples whose set is full say nothing: they keep their place but are never visited.
        self.visited = risk.candidates.labelled()
        self._forward = self.plan.prepare(model)
        self._parameters = list(model.parameters())

    def epochs(self, until: int) -> Iterator[EpochRecord]:
        """Train up to and including epoch `until`."""
        while self.epoch < until:
            start = time.perf_counter()
            with self.plan.limit_threads():
                losses = self._train_one_epoch()
            if self.scheduler is not None:
                self.scheduler.step()
            self.epoch += 1
            seconds = time.perf_counter() - start
            metrics = {"train/risk": self._checked_mean(losses)}
            metrics |= {name: float(value) for name, value in self.evaluate(self.model, self.risk).items()}
            yield EpochRecord(epoch=self.epoch, metrics=metrics, seconds=seconds)

    def _order(self) -> Tensor:
        """Return the examples in the order in which this epoch visits them."""
        return self.visited[torch.randperm(len(self.visited), generator=self.shuffle).to(self.visited.device)]

    def _train_one_epoch(self) -> Tensor:
        """Make one pass over the data; return each step's loss and its share of the examples, [steps, 2]."""
        self.model.train()
        common = self._common_state()
        order = self._order()
        slabs = order.split(batch_sizes(len(order), self.inputs.slab_length(self.batch_size)))
        losses: list[Tensor] = []
        for index, inputs in zip(slabs, self.inputs.slabs(slabs), strict=True):
            mask, rows = self.risk.gather(index)
            sizes = batch_sizes(len(index), self.batch_size)
            pieces = zip(*(value.split(sizes) for value in (inputs, mask, *rows.values())), strict=True)
            # Batches are views of the slab, so that an update of theirs is one of the slab's.
            for batch, batch_mask, *values in pieces:
                losses.append(self._step(batch, batch_mask, dict(zip(rows, values, strict=True)), common))
            if self.risk.estimator.update_when != "never":
                self.risk.scatter(index, mask, rows)
        shares = torch.tensor([size for index in slabs for size in batch_sizes(len(index), self.batch_size)])
        return torch.stack([torch.stack(losses).double().cpu(), shares.double()], dim=1)

    def _common_state(self) -> State:
        """Return the state that all steps of an epoch share; updates write into these very tensors."""
        state = self.risk.shared()
        if "epoch" in self.risk.estimator.needs:
            state["epoch"] = torch.tensor(float(self.epoch), device=self._parameters[0].device)
        return state

    def _step(self, inputs: Tensor, mask: Tensor, rows: State, common: State) -> Tensor:
        estimator = self.risk.estimator
        state = {**common, **rows}
        logits, extras = networks.split_output(self._forward(inputs))
        objective = estimator.objective(logits, mask, {**state, **extras})
        new: State = {}
        if estimator.update_when == "before":
            # Computed before the step, because the state must be the one that the loss was computed with.
            detached = {name: value.detach() for name, value in extras.items()}
            new = estimator.update(logits.detach(), mask, {**state, **detached})
        for parameter in self._parameters:
            parameter.grad = None
        objective.backward()
        self.optimizer.step()
        if isinstance(self.model, networks.Extended):
            self.model.after_step()
        if estimator.update_when == "after":
            with torch.no_grad(), frozen_running_statistics(self.model):
                logits, extras = networks.split_output(self._forward(inputs))
                new = estimator.update(logits, mask, {**state, **extras})
        self.risk.write_batch(new, rows)
        return objective.detach()

    def _checked_mean(self, losses: Tensor) -> float:
        bad = (~torch.isfinite(losses[:, 0])).nonzero().flatten()
        if len(bad):
            raise DivergedError(
                f"the loss became {float(losses[bad[0], 0])} at step {int(bad[0]) + 1} of epoch {self.epoch}: "
                "lower --lr, or choose a bounded loss"
            )
        return float((losses[:, 0] * losses[:, 1]).sum() / losses[:, 1].sum())

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next epoch depends on."""
        return {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "risk": self.risk.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            "shuffle": self.shuffle.get_state(),
            "global_rng": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a saved moment."""
        self.epoch = state["epoch"]
        self.model.load_state_dict(state["model"])
        self.risk.load_state_dict(state["risk"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.shuffle.set_state(state["shuffle"])
        torch.set_rng_state(state["global_rng"])


def batch_sizes(n: int, batch_size: int) -> list[int]:
    """Return the sizes of consecutive batches; a last one of a single example joins its neighbour (batch norm)."""
    sizes = [batch_size] * (n // batch_size) + ([n % batch_size] if n % batch_size else [])
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [sizes[-2] + 1]
    return sizes


@contextmanager
def frozen_running_statistics(model: nn.Module) -> Iterator[None]:
    """Keep batch norm in training mode but leave its running statistics alone."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


def predict(model: nn.Module, inputs: Tensor | Inputs) -> Tensor:
    """Return the logits of all inputs, in large batches, in evaluation mode."""
    source = as_inputs(inputs)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        if isinstance(inputs, Tensor):
            parts = iter(inputs.split(source.slab_length()))
        else:
            parts = source.slabs(torch.arange(len(source)).split(source.slab_length()))
        logits = torch.cat([model(part) for part in parts])
    model.train(was_training)
    return logits
