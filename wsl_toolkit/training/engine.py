"""The one training loop; knows neither MLflow nor pluggy nor click, and never sees a true label."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit import networks
from wsl_toolkit.components import State
from wsl_toolkit.data.inputs import Inputs, as_inputs
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.risk import LiveRisk, Risk


@attrs.frozen(kw_only=True)
class EpochRecord:
    """What an epoch came to."""

    epoch: int
    metrics: dict[str, float]
    seconds: float


Evaluation = Callable[[nn.Module, Risk], dict[str, Tensor]]
"""Measures a model after an epoch; the only place where clean labels may be."""


@attrs.frozen(kw_only=True, eq=False)
class LogitEvaluation:
    """An evaluation that needs logits on fixed inputs and nothing else, so that many models can share the pass."""

    inputs: Mapping[str, Tensor | Inputs]
    score: Callable[[dict[str, Tensor], Risk], dict[str, Tensor]]
    """From the logits of each part and the risk to metrics."""

    def __call__(self, model: nn.Module, risk: Risk) -> dict[str, Tensor]:
        """Evaluate one model."""
        return self.score({name: predict(model, part) for name, part in self.inputs.items()}, risk)


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """What a step takes out of a slab: so many examples, which are all of the batch or one rank's part of it."""

    size: int
    whole: int
    """Examples in the whole batch."""
    places: Tensor | None = None
    """Where in the whole batch this part's examples belong; None: they are all of it."""


@attrs.frozen(kw_only=True, eq=False)
class Slab:
    """Some thousand examples that are fetched at once, and the batches that are cut from them."""

    index: Tensor
    batches: list[Batch]


class Loop:
    """The loop itself: shuffled slabs, batches cut from them, and on each batch a step and an update of the state.

    Everything random is decided outside. `risk` and `model` may also be stacks of many (see `training.stacking`): then
    losses are vectors, and all that is written here holds for each model.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        risk: LiveRisk,
        inputs: Inputs,
        optimizer: torch.optim.Optimizer,
        batch_size: int,
        plan: ExecutionPlan,
    ) -> None:
        self.model = model
        self.risk = risk
        self.inputs = inputs
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.plan = plan
        self._forward = plan.prepare(model)
        self._parameters = [p for p in model.parameters() if p.requires_grad]

    def run(
        self, order: Tensor, epoch: int, begun: Losses | None = None, stop: Callable[[], bool] = lambda: False
    ) -> Losses:
        """Visit the examples once in the given order; `begun` holds the steps already done, `stop` breaks off.

        A pass that is broken off between two batches and begun again cuts the same batches out of the same slabs,
        for kernels may give other last bits where data lies at another address.
        """
        self.model.train()
        common = self._common_state(epoch)
        slabs = self.cut(order)
        done = 0 if begun is None else len(begun.sizes)
        while done and done >= len(slabs[0].batches):
            slabs, done = slabs[1:], done - len(slabs[0].batches)
        losses: list[Tensor] = []
        shares: list[int] = []
        with self.plan.limit_threads():
            for slab, inputs in zip(slabs, self.inputs.slabs([slab.index for slab in slabs]), strict=True):
                mask, rows = self.risk.gather(slab.index)
                sizes = [batch.size for batch in slab.batches]
                # Batches are views of the slab, so that an update of theirs is one of the slab's.
                pieces = zip(*(value.split(sizes) for value in (inputs, mask, *rows.values())), strict=True)
                cut = itertools.islice(zip(slab.batches, pieces, strict=True), done, None)
                for batch, (batch_inputs, batch_mask, *values) in cut:
                    batch_rows = dict(zip(rows, values, strict=True))
                    losses.append(self._step(batch_inputs, batch_mask, batch_rows, common, batch))
                    shares.append(batch.whole)
                    if stop():
                        break
                done = 0
                if self.risk.estimator.update_when != "never":
                    self.risk.scatter(slab.index, mask, rows)
                if stop():
                    break
        per_step = self._total(torch.stack(losses).double().cpu())
        new = Losses(per_step=per_step, sizes=torch.tensor(shares, dtype=torch.float64))
        return new if begun is None else begun.followed_by(new)

    def cut(self, order: Tensor) -> list[Slab]:
        """Cut an epoch's order into slabs, and those into batches."""
        parts = order.split(batch_sizes(len(order), self.inputs.slab_length(self.batch_size)))
        return [
            Slab(index=part, batches=[Batch(size=n, whole=n) for n in batch_sizes(len(part), self.batch_size)])
            for part in parts
        ]

    def _total(self, per_step: Tensor) -> Tensor:
        """Return the steps' losses from what this process has of them."""
        return per_step

    def _common_state(self, epoch: int) -> State:
        """Return the state that all steps of an epoch share; updates write into these very tensors."""
        state = self.risk.shared()
        if "epoch" in self.risk.estimator.needs:
            state["epoch"] = torch.tensor(float(epoch), device=self._parameters[0].device)
        return state

    def _step(self, inputs: Tensor, mask: Tensor, rows: State, common: State, batch: Batch) -> Tensor:
        estimator = self.risk.estimator
        state = {**common, **rows}
        logits, extras = networks.split_output(self._forward(inputs))
        objective: Tensor = estimator.objective(logits, mask, {**state, **extras})
        new: State = {}
        if estimator.update_when == "before":
            # Computed before the step, because the state must be the one that the loss was computed with.
            detached = {name: value.detach() for name, value in extras.items()}
            new = estimator.update(logits.detach(), mask, {**state, **detached})
        for parameter in self._parameters:
            parameter.grad = None
        objective.backward(torch.ones_like(objective))
        self._descend()
        if estimator.update_when == "after":
            with torch.no_grad(), frozen_running_statistics(self.model):
                logits, extras = networks.split_output(self._forward(inputs))
                new = estimator.update(logits, mask, {**state, **extras})
        self.risk.write_batch(new, rows)
        return objective.detach()

    def _descend(self) -> None:
        """Take the optimiser's step along the gradients."""
        self.optimizer.step()
        if isinstance(self.model, networks.Extended):
            self.model.after_step()


@attrs.frozen(kw_only=True)
class Losses:
    """What an epoch's steps minimised, [steps] (or [steps, models]), and how many examples each step saw."""

    per_step: Tensor
    sizes: Tensor

    def mean(self) -> Tensor:
        """Return the mean over examples."""
        return self.sizes @ self.per_step / self.sizes.sum()

    def followed_by(self, other: Losses) -> Losses:
        """Return these steps and the ones after them."""
        return Losses(per_step=torch.cat([self.per_step, other.per_step]), sizes=torch.cat([self.sizes, other.sizes]))

    def checked_mean(self, epoch: int) -> float:
        """Return the mean over examples, or say where the loss was no number."""
        bad = (~torch.isfinite(self.per_step)).nonzero().flatten()
        if len(bad):
            raise DivergedError(
                f"the loss became {float(self.per_step[bad[0]])} at step {int(bad[0]) + 1} of epoch {epoch}: "
                "lower --lr, or choose a bounded loss"
            )
        return float(self.mean())


@attrs.frozen(kw_only=True)
class UnderWay:
    """An epoch that was broken off: the order of its examples, the steps done, and the seconds that they took."""

    order: Tensor
    losses: Losses | None = None
    seconds: float = 0.0


class Trainer:
    """Trains one model on one risk; `epochs()` yields a record each, and `state_dict()` is all that it knows."""

    processes = 1
    """How many processes train it together (see `wsl_toolkit.training.distributed`)."""

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
        stop: Callable[[], bool] = lambda: False,
        nan_ends: bool = True,
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
        self.stop = stop
        self.nan_ends = nan_ends
        self.epoch = 0
        self._under_way: UnderWay | None = None
        # Examples whose set is full say nothing: they keep their place but are never visited.
        self.visited = risk.candidates.labelled()
        # Dropout and the like draw from torch's global generator; each trainer has its own thread of that stream,
        # which begins where the stream stands now, so that several can take turns.
        self._global_rng = torch.get_rng_state()
        self._loop = Loop(
            model=model, risk=risk, inputs=self.inputs, optimizer=optimizer, batch_size=batch_size, plan=self.plan
        )

    def epochs(self, until: int) -> Iterator[EpochRecord]:
        """Train up to and including epoch `until`; end early, between two batches, when told to stop."""
        while self.epoch < until:
            begun = self._under_way or UnderWay(order=self.next_order())
            start = time.perf_counter() - begun.seconds
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(self._global_rng)
                losses = self._loop.run(begun.order, self.epoch, begun.losses, self.stop)
                self._global_rng = torch.get_rng_state()
            seconds = time.perf_counter() - start
            if losses.sizes.sum() < len(begun.order):
                self._under_way = UnderWay(order=begun.order, losses=losses, seconds=seconds)
                return
            self._under_way = None
            self.end_epoch()
            metrics = {"train/risk": losses.checked_mean(self.epoch) if self.nan_ends else float(losses.mean())}
            metrics |= {name: float(value) for name, value in self.evaluate(self.model, self.risk).items()}
            yield EpochRecord(epoch=self.epoch, metrics=metrics, seconds=seconds)

    @property
    def step(self) -> int:
        """How many steps of the next epoch are done already."""
        return 0 if self._under_way is None or self._under_way.losses is None else len(self._under_way.losses.sizes)

    def next_order(self) -> Tensor:
        """Draw the order in which the next epoch visits the examples."""
        return self.visited[torch.randperm(len(self.visited), generator=self.shuffle).to(self.visited.device)]

    def end_epoch(self) -> None:
        """Count the epoch, let the learning rate follow its schedule, and the estimator look back if it wants to."""
        if self.risk.estimator.looks_back():
            rng = torch.Generator()
            rng.set_state(self._global_rng)
            self.risk.after_epoch(self.visited, self.epoch, torch.randint(2**53, (), generator=rng))
            self._global_rng = rng.get_state()
        if self.scheduler is not None:
            self.scheduler.step()
        self.epoch += 1

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
            "under_way": attrs.asdict(self._under_way) if self._under_way else None,
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
        begun = state["under_way"]
        self._under_way = UnderWay(**{**begun, "losses": Losses(**begun["losses"])}) if begun else None


def own_storage(value: Any) -> Any:
    """Return nested values whose tensors that are parts of larger ones are copied: a file would get all of those."""
    if isinstance(value, Tensor):
        partial = value.untyped_storage().nbytes() > value.nbytes
        return value.clone(memory_format=torch.contiguous_format) if partial else value
    if isinstance(value, dict):
        return {key: own_storage(item) for key, item in value.items()}
    return [own_storage(item) for item in value] if isinstance(value, list) else value


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
