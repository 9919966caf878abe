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
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.risk import Risk

SLAB_CELLS = 2**22
"""Inputs are gathered in slabs of about this many numbers: one shuffled copy for many batches, still in cache."""

EVALUATION_BATCH = 8192


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
        inputs: Tensor,
        optimizer: torch.optim.Optimizer,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None,
        batch_size: int,
        shuffle: torch.Generator,
        evaluate: Evaluation,
    ) -> None:
        self.model = model
        self.risk = risk
        self.inputs = inputs
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.evaluate = evaluate
        self.epoch = 0
        # Examples whose set is full say nothing: they keep their place but are never visited.
        self.visited = risk.candidates.labelled()

    def epochs(self, until: int) -> Iterator[EpochRecord]:
        """Train up to and including epoch `until`."""
        while self.epoch < until:
            start = time.perf_counter()
            losses = self._train_one_epoch()
            if self.scheduler is not None:
                self.scheduler.step()
            self.epoch += 1
            seconds = time.perf_counter() - start
            metrics = {"train/risk": self._checked_mean(losses)}
            metrics |= {name: float(value) for name, value in self.evaluate(self.model, self.risk).items()}
            yield EpochRecord(epoch=self.epoch, metrics=metrics, seconds=seconds)

    def _train_one_epoch(self) -> Tensor:
        """Make one pass over the data; return each step's loss and its share of the examples, [steps, 2]."""
        self.model.train()
        order = self.visited[torch.randperm(len(self.visited), generator=self.shuffle).to(self.visited.device)]
        width = max(1, self.inputs[0].numel())
        slab = self.batch_size * max(1, SLAB_CELLS // (width * self.batch_size))
        losses: list[Tensor] = []
        sizes: list[int] = []
        for first, last in batch_bounds(len(order), slab):
            index = order[first:last]
            inputs = self.inputs[index]
            mask, rows = self.risk.gather(index)
            for low, high in batch_bounds(len(index), self.batch_size):
                batch_rows = {name: value[low:high] for name, value in rows.items()}
                losses.append(self._step(inputs[low:high], mask[low:high], batch_rows))
                sizes.append(high - low)
            if self.risk.estimator.update_when != "never":
                self.risk.scatter(index, mask, rows)
        return torch.stack([torch.stack(losses).double().cpu(), torch.tensor(sizes, dtype=torch.float64)], dim=1)

    def _step(self, inputs: Tensor, mask: Tensor, rows: dict[str, Tensor]) -> Tensor:
        estimator = self.risk.estimator
        state = {**self.risk.shared(), **rows}
        if "epoch" in estimator.needs:
            state["epoch"] = torch.tensor(float(self.epoch), device=inputs.device)
        logits, extras = networks.run(self.model, inputs)
        objective = estimator.objective(logits, mask, {**state, **extras})
        new: dict[str, Tensor] = {}
        if estimator.update_when == "before":
            # Computed before the step, because the state must be the one that the loss was computed with.
            detached = {name: value.detach() for name, value in extras.items()}
            new = estimator.update(logits.detach(), mask, {**state, **detached})
        self.optimizer.zero_grad(set_to_none=True)
        objective.backward()
        self.optimizer.step()
        if isinstance(self.model, networks.Extended):
            self.model.after_step()
        if estimator.update_when == "after":
            with torch.no_grad(), frozen_running_statistics(self.model):
                logits, extras = networks.run(self.model, inputs)
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


def batch_bounds(n: int, batch_size: int) -> list[tuple[int, int]]:
    """Return the bounds of consecutive batches; a last one of a single example joins its neighbour (batch norm)."""
    starts = list(range(0, n, batch_size))
    if len(starts) > 1 and n - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], n], strict=True))


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


def predict(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the logits of all inputs, in large batches, in evaluation mode."""
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        logits = torch.cat([model(part) for part in inputs.split(EVALUATION_BATCH)])
    model.train(was_training)
    return logits
