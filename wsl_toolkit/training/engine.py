"""The one training loop; knows neither MLflow nor pluggy nor click, and never sees a true label."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit import networks
from wsl_toolkit.components import State
from wsl_toolkit.data.inputs import Inputs, as_inputs
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.plugins.attribution import mark
from wsl_toolkit.training import divergence, first_batch
from wsl_toolkit.training.linear import differentiates_itself, gradient_writer, is_watched
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.risk import WEIGHT, LiveRisk, loop_state

CONVOLVED_CELLS = 2**19
"""Numbers that a convolutional network predicts from at once. Each of its layers needs several times as much: of
ResNet-32, predictions of 170 images at once took half as long as those of 1,365, and a tenth of the memory."""
FEWEST_IMAGES = 16


@attrs.frozen(kw_only=True)
class EpochRecord:
    """Metrics and duration of one epoch."""

    epoch: int
    metrics: dict[str, float]
    seconds: float


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """How many examples a step takes out of a chunk: all of the batch, or one rank's part of it."""

    size: int
    whole: int
    """Examples in the whole batch."""
    places: Tensor | None = None
    """Where in the whole batch this part's examples belong; None: they are all of it."""


@attrs.frozen(kw_only=True, eq=False)
class Chunk:
    """Some thousand examples that are gathered at once, and the batches that are cut from them."""

    index: Tensor
    batches: list[Batch]


@attrs.frozen(kw_only=True, eq=False)
class Seen:
    """A batch after the forward pass: logits, candidate masks, and state with what the network gave beside logits."""

    logits: Tensor
    mask: Tensor
    state: State


class Loop:
    """Shuffled chunks, batches cut from them, and on each batch a step and an update of the estimator's state.

    Everything random is decided outside. `risk` and `model` may also be stacks of many (see `training.stacking`): then
    losses are vectors, and all that is written here holds for each model. On several ranks (`training.distributed`)
    the methods with an underscore differ, and nothing else.
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
        self._writer = None if plan.autocast or plan.compile else self._gradient_writer()
        self._by_hand: Callable[[Tensor, Tensor], None] | None = None
        """What writes the gradients of a linear model whose estimator differentiates its own loss, in this pass."""
        self.scaler = plan.scaler()
        """What scales losses before they are differentiated, in float16."""
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._norms = running_norms(model)
        self.watch = divergence.Watch(self._single)
        self.after_step: Callable[[], None] | None = None
        """What follows each of the optimiser's steps: a schedule that does not wait for the epoch's end."""
        self.unchecked = True
        """Whether the first batch, on which the components' contracts are checked, is yet to come."""

    def run(
        self, order: Tensor, epoch: int, begun: Losses | None = None, stop: Callable[[], bool] = lambda: False
    ) -> Losses:
        """Visit the examples once in the given order; `begun` holds the steps already done, `stop` ends it early.

        A pass that is interrupted between two batches and begun again cuts the same batches out of the same chunks,
        for kernels may give other last bits where data lies at another address.
        """
        self.model.train()
        self._by_hand = None if self._writer is None or is_watched(self.model) else self._writer
        common = self._common_state(epoch)
        chunks = self.cut(order)
        done = 0 if begun is None else len(begun.sizes)
        while done and done >= len(chunks[0].batches):
            chunks, done = chunks[1:], done - len(chunks[0].batches)
        losses: list[Tensor] = []
        shares: list[int] = []
        with self.plan.in_force():
            gathered = self.inputs.chunks([chunk.index for chunk in chunks], ahead=self.plan.prefetch)
            for chunk, inputs in zip(chunks, gathered, strict=True):
                mask, rows = self.risk.gather(chunk.index)
                sizes = [batch.size for batch in chunk.batches]
                # Batches are views of the chunk, so that an update of theirs is one of the chunk's.
                pieces = zip(*(value.split(sizes) for value in (inputs, mask, *rows.values())), strict=True)
                cut = itertools.islice(zip(chunk.batches, pieces, strict=True), done, None)
                for batch, (batch_inputs, batch_mask, *values) in cut:
                    batch_rows = dict(zip(rows, values, strict=True))
                    losses.append(self.step(batch_inputs, batch_mask, batch_rows, common, batch))
                    shares.append(batch.whole)
                    if len(losses) % divergence.EVERY == 0:
                        self.watch.look(losses)
                    if stop():
                        break
                done = 0
                if self.risk.estimator.update_when != "never":
                    self.risk.scatter(chunk.index, mask, rows)
                if stop():
                    break
        self.watch.look(losses)
        per_step = self._total(torch.stack(losses).cpu().double())  # not every device has float64
        new = Losses(per_step=per_step, sizes=torch.tensor(shares, dtype=torch.float64))
        return new if begun is None else begun.followed_by(new)

    def cut(self, order: Tensor) -> list[Chunk]:
        """Cut an epoch's order into chunks, and those into batches."""
        length = self.plan.chunk or self.inputs.chunk_length(self.batch_size)
        parts = order.split(batch_sizes(len(order), length))
        return [
            Chunk(index=part, batches=[Batch(size=n, whole=n) for n in batch_sizes(len(part), self.batch_size)])
            for part in parts
        ]

    def step(self, inputs: Tensor, mask: Tensor, rows: State, common: State, batch: Batch) -> Tensor:
        """Take one step: forward, objective, backward, the optimiser's step, and the update of the state's rows."""
        when = self.risk.estimator.update_when
        for parameter in self._parameters:
            parameter.grad = None
        new: State = {}
        takes_part = self._takes_part(batch)
        if takes_part:
            version = inputs._version
            if self.unchecked and self._by_hand is not None:
                self._check(self._look(inputs, mask, rows, batch), common, wrote=inputs._version != version)
            with torch.set_grad_enabled(self._by_hand is None):
                seen = self._look(inputs, mask, rows, batch)
            if self.unchecked:
                self._check(seen, common, wrote=inputs._version != version)
            self.watch.see(seen.logits, seen.mask, seen.state, common)
            objective, slopes = self._differentiated(seen, common, batch)
            if when == "before":
                # Computed before the step, because the state must be the one that the loss was computed with.
                new = self._update(seen, common, batch)
            if self._by_hand is not None and slopes is not None:
                self._by_hand(inputs, slopes)
            else:
                # Each model's objective depends on that model alone, so that their sum has the gradients of all.
                total = objective.sum() if objective.ndim else objective
                (total if self.scaler is None else self.scaler.scale(total)).backward()
        else:
            self.watch.see_nothing()
            objective = torch.zeros((), device=self._parameters[0].device)
        self._descend()
        if when == "after" and takes_part:
            with torch.no_grad(), frozen_running_statistics(self._norms):
                new = self._update(self._look(inputs, mask, rows, batch), common, batch)
        self.risk.write_batch(new, rows)
        return self._counted(objective.detach())

    def _common_state(self, epoch: int) -> State:
        """Return the state that all steps of an epoch share; updates write into these very tensors."""
        state = self.risk.shared()
        return state | loop_state(self.risk.estimator, epoch, self._parameters[0].device)

    def _takes_part(self, batch: Batch) -> bool:
        """Return whether this process has examples of a batch, or must see it for another reason."""
        return True

    def _look(self, inputs: Tensor, mask: Tensor, rows: State, batch: Batch) -> Seen:
        """Return what the objective is computed from."""
        try:
            logits, extras = networks.split_output(self._forward(inputs))
        except Exception as error:
            mark(error, "backbone")
            raise
        return Seen(logits=logits, mask=mask, state={**rows, **extras})

    def _check(self, seen: Seen, common: State, *, wrote: bool) -> None:
        """Check once that network and estimator keep their contracts: what is wrong may train all the same."""
        first_batch.check_network(seen.logits, tuple(seen.mask.shape), wrote=wrote)
        for place in self._places():
            single = self._single(place, seen.logits, seen.mask, seen.state, common)
            first_batch.check_estimator(single)
            if self._by_hand is not None:
                first_batch.check_gradient(single)
        self.unchecked = False

    def _places(self) -> Sequence[int]:
        """Return the places of models whose estimators differ; there is one where there is no stack."""
        return (0,)

    def _single(self, place: int, logits: Tensor, mask: Tensor, state: State, common: State) -> first_batch.Single:
        """Return a batch as the model at a place sees it, alone."""
        return first_batch.Single(
            estimator=self.risk.estimator,
            logits=logits,
            mask=mask,
            state=state,
            shared=common,
            row_names=tuple(name for name in self.risk.row_names if name != WEIGHT),
        )

    def _gradient_writer(self) -> Callable[[Tensor, Tensor], None] | None:
        """Return what writes the network's gradients from the loss's in the logits; None: torch does."""
        return gradient_writer(self.model) if differentiates_itself(self.risk.estimator) else None

    def _differentiated(self, seen: Seen, common: State, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return what the batch minimises, and its gradient in the logits where the estimator writes it out."""
        if self._by_hand is None:
            return self._objective(seen, common, batch), None
        losses, slopes = self.risk.estimator.loss_and_gradient(seen.logits, seen.mask, {**common, **seen.state})
        if self.risk.weighted:
            weights = seen.state[WEIGHT]
            losses, slopes = losses * weights, slopes * weights.unsqueeze(-1)
        return losses.mean(0), slopes / len(losses)

    def _objective(self, seen: Seen, common: State, batch: Batch) -> Tensor:
        """Return what the batch minimises."""
        state = {**common, **seen.state}
        if self.risk.weighted:
            losses: Tensor = self.risk.estimator.loss(seen.logits, seen.mask, state)
            return (losses * state[WEIGHT]).mean()
        objective: Tensor = self.risk.estimator.objective(seen.logits, seen.mask, state)
        return objective

    def _update(self, seen: Seen, common: State, batch: Batch) -> State:
        """Return new values of the batch's rows and of the shared state."""
        detached = {name: value.detach() for name, value in seen.state.items()}
        new: State = self.risk.estimator.update(seen.logits.detach(), seen.mask, {**common, **detached})
        return new

    def _descend(self) -> None:
        """Take the optimiser's step along the gradients; in float16 one whose gradients overflowed is left out."""
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if isinstance(self.model, networks.Extended):
            self.model.after_step()
        if self.after_step is not None:
            self.after_step()

    def _counted(self, objective: Tensor) -> Tensor:
        """Return what this process adds to the batch's loss."""
        return objective

    def _total(self, per_step: Tensor) -> Tensor:
        """Return the steps' losses from what this process has of them."""
        return per_step


@attrs.frozen(kw_only=True)
class Losses:
    """Each step's loss, [steps] (or [steps, models]), and how many examples it saw."""

    per_step: Tensor
    sizes: Tensor

    def mean(self) -> Tensor:
        """Return the mean over examples."""
        return self.sizes @ self.per_step / self.sizes.sum()

    @property
    def examples(self) -> int:
        """How many examples were visited."""
        return int(self.sizes.sum())

    def of_model(self, place: int) -> Losses:
        """Return the losses of one model of a stack."""
        return Losses(per_step=self.per_step[:, place], sizes=self.sizes)

    def followed_by(self, other: Losses) -> Losses:
        """Return these steps and the ones after them."""
        return Losses(per_step=torch.cat([self.per_step, other.per_step]), sizes=torch.cat([self.sizes, other.sizes]))

    def checked_mean(self, epoch: int, name: str, origin: divergence.Origin | None) -> float:
        """Return the mean over examples; raise if a loss is NaN or infinite, naming the step and where it came from."""
        bad = (~torch.isfinite(self.per_step)).nonzero().flatten()
        if len(bad):
            message = f"the loss became {float(self.per_step[bad[0]])} at step {int(bad[0]) + 1} of epoch {epoch}"
            if origin is not None:
                raise origin.error(name, message)
            raise DivergedError(f"{message}: lower --lr, or choose a bounded loss")
        return float(self.mean())


def batch_sizes(n: int, batch_size: int) -> list[int]:
    """Return the sizes of consecutive batches; a last one of a single example joins its neighbour (batch norm)."""
    sizes = [batch_size] * (n // batch_size) + ([n % batch_size] if n % batch_size else [])
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [sizes[-2] + 1]
    return sizes


def running_norms(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """Return the batch norms of a network that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]


@contextmanager
def frozen_running_statistics(norms: Sequence[nn.modules.batchnorm._BatchNorm]) -> Iterator[None]:
    """Keep batch norms in training mode but leave their running statistics alone."""
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


def all_logits(model: nn.Module, inputs: Inputs, index: Tensor) -> State:
    """Return the logits of some of the training inputs, by the names that estimators get them by."""
    found = {"all_logits": networks.plain(model)}
    if isinstance(model, networks.Extended) and "two_networks" in model.needs and model.second is not None:
        found = {"all_logits": model.network, "second_all_logits": model.second}
    return {name: logits_of(network, inputs, index) for name, network in found.items()}


def logits_of(model: nn.Module, inputs: Inputs, index: Tensor) -> Tensor:
    """Return the logits of some of the training inputs, in evaluation mode and without a gradient.

    Not in inference mode: training inputs share a buffer, which training writes to again.
    """
    was_training = model.training
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(part) for part in inputs.chunks(index.split(at_once(model, inputs)))])
    model.train(was_training)
    return logits


def at_once(model: nn.Module, inputs: Inputs) -> int:
    """Return how many examples a network predicts at once: a chunk, or what a processor's cache holds of images."""
    length = inputs.chunk_length()
    weight = next(model.parameters(), None)
    convolves = any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())
    if not convolves or weight is None or weight.device.type != "cpu":
        return length
    return min(length, max(FEWEST_IMAGES, CONVOLVED_CELLS // math.prod(inputs.shape)))


def predict(model: nn.Module, inputs: Tensor | Inputs) -> Tensor:
    """Return the logits of all inputs, in large batches, in evaluation mode."""
    source = as_inputs(inputs)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        length = at_once(model, source)
        if isinstance(inputs, Tensor):
            parts = iter(inputs.split(length))
        else:
            parts = source.chunks(torch.arange(len(source)).split(length))
        logits = torch.cat([model(part) for part in parts])
    model.train(was_training)
    return logits
