"""Many risks as one: state rows [n, M, …], losses [M]; estimators are called as for one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.errors import PluginError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.training.first_batch import Single
from wsl_toolkit.training.linear import differentiates_itself
from wsl_toolkit.training.risk import Risk


class StackedRisk:
    """M risks in one set of tensors; the members' own buffers become views into it.

    With `own_orders` each member visits its examples in its own order, and an index is [B, M]; otherwise all share one,
    and an index is [B], whether they share the candidate sets too or not. Masks and rows are [B, M, …] in any case.
    """

    weighted = False
    """Weighted examples are never trained as a stack."""

    def __init__(self, members: Sequence[Risk], *, own_orders: bool) -> None:
        self.members = members
        self.own_orders = own_orders
        self._rows = {name: self._adopt(f"row_{name}", dim=1) for name in members[0].row_names}
        self._shared = {name: self._adopt(f"shared_{name}", dim=0) for name in members[0].shared()}
        self._masks: Tensor | None = None
        """All members' masks, [n, M, K], unless they are the same."""
        if own_orders or not all(same_sets(member.candidates, members[0].candidates) for member in members[1:]):
            self._masks = torch.stack([member.candidates.mask() for member in members], dim=1)
        self._place = torch.arange(len(members), device=members[0].candidates.sizes.device)
        self.estimator = StackedEstimator([member.estimator for member in members], frozenset(self._shared))

    def _adopt(self, buffer: str, dim: int) -> Tensor:
        """Stack a buffer of all members along `dim`, and let each member's be a view of it."""
        stacked = torch.stack([member.get_buffer(buffer) for member in self.members], dim=dim)
        for member, view in zip(self.members, stacked.unbind(dim), strict=True):
            setattr(member, buffer, view)
        return stacked

    def shared(self) -> State:
        """Return the shared state, [M, …]."""
        return dict(self._shared)

    def gather(self, index: Tensor) -> tuple[Tensor, State]:
        """Return the masks [B, M, K] and the state rows [B, M, …] of some examples, as copies to work on."""
        rows = {name: self._select(value, index) for name, value in self._rows.items()}
        if self._masks is not None:
            return self._select(self._masks, index), rows
        mask = self.members[0].candidates.mask(index)
        return mask.unsqueeze(1).expand(-1, len(self.members), -1).contiguous(), rows

    def scatter(self, index: Tensor, mask: Tensor, rows: State) -> None:
        """Write state rows back."""
        for name, value in rows.items():
            if self.own_orders:
                self._rows[name].flatten(0, 1).index_copy_(0, self._flat(index), value.flatten(0, 1))
            else:
                self._rows[name].index_copy_(0, index, value)

    def _select(self, rows: Tensor, index: Tensor) -> Tensor:
        """Return some examples' rows [B, M, …] out of all, [n, M, …]."""
        if not self.own_orders:
            return rows.index_select(0, index)
        chosen: Tensor = rows.flatten(0, 1).index_select(0, self._flat(index)).unflatten(0, index.shape)
        return chosen

    def _flat(self, index: Tensor) -> Tensor:
        """Return where the members' rows lie when [n, M] is one long dimension."""
        return (index * len(self.members) + self._place).flatten()

    def write_batch(self, new: State, rows: State) -> None:
        """Take an update: rows into the batch's views, shared values into their buffers."""
        for name, value in new.items():
            if name not in rows and name not in self._shared:
                raise PluginError(
                    f"estimator {self.members[0].estimator.name}: update returned {name!r}, which neither init_state "
                    "nor init_shared declared"
                )
            (rows[name] if name in rows else self._shared[name]).copy_(value)

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of state that each example has."""
        return self.members[0].row_names

    def distinct(self) -> list[int]:
        """Return the place of the first model of each distinct estimator."""
        return [start for _, start, _ in self.estimator.blocks]

    def single(self, place: int, logits: Tensor, mask: Tensor, state: State, shared: State) -> Single:
        """Return the batch as the model at a place sees it."""
        return Single(
            estimator=self.members[place].estimator,
            logits=logits[:, place],
            mask=mask[:, place],
            state={name: value if value.ndim == 0 else value[:, place] for name, value in state.items()},
            shared={name: value if value.ndim == 0 else value[place] for name, value in shared.items()},
            row_names=self.row_names,
        )


class StackedEstimator:
    """Calls estimators, written for one model, on stacks [B, M, …]; neighbours that are equal share a call.

    An ordinary estimator's loss is one value for each example, so B examples of M models are B·M examples of one. One
    that works on whole batches or has shared state is mapped over the models by torch.vmap.
    """

    def __init__(self, members: Sequence[Estimator], shared_names: frozenset[str]) -> None:
        self.update_when = members[0].update_when
        self.needs = members[0].needs
        self._shared_names = shared_names
        self.blocks = equal_neighbours(members)

    def objective(self, logits: Tensor, mask: Tensor, state: State) -> Tensor:
        """Return what each model minimises, [M]."""
        parts = [self._objective(estimator, *args) for estimator, args in self._parts(logits, mask, state)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @property
    def differentiates_itself(self) -> bool:
        """Whether every member writes its loss's gradient out."""
        return not self._shared_names and all(differentiates_itself(estimator) for estimator, _, _ in self.blocks)

    def loss_and_gradient(self, logits: Tensor, mask: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Return the losses, [B, M], and their gradients in the logits, [B, M, K]."""
        parts = [
            estimator.loss_and_gradient(own.flatten(0, 1), masks.flatten(0, 1), _flat_state(of_state))
            for estimator, (own, masks, of_state) in self._parts(logits, mask, state)
        ]
        losses, slopes = (
            [each.unflatten(0, (len(logits), -1)) for each in values] for values in zip(*parts, strict=True)
        )
        return (losses[0], slopes[0]) if len(parts) == 1 else (torch.cat(losses, dim=1), torch.cat(slopes, dim=1))

    def update(self, logits: Tensor, mask: Tensor, state: State) -> State:
        """Return new state: rows [B, M, …], shared [M, …]."""
        parts = [self._update(estimator, *args) for estimator, args in self._parts(logits, mask, state)]
        if len(parts) == 1:
            return parts[0]
        dims = {name: 0 if name in self._shared_names else 1 for name in parts[0]}
        return {name: torch.cat([part[name] for part in parts], dim=dim) for name, dim in dims.items()}

    def _parts(self, logits: Tensor, mask: Tensor, state: State) -> Any:
        """Yield each distinct estimator with its models' part of the arguments."""
        for estimator, start, stop in self.blocks:
            if len(self.blocks) == 1:
                yield estimator, (logits, mask, state)
                return
            part = slice(start, stop)
            of_state = {
                name: value if value.ndim == 0 else value[part] if name in self._shared_names else value[:, part]
                for name, value in state.items()
            }
            yield estimator, (logits[:, part], mask[:, part], of_state)

    def _objective(self, estimator: Estimator, logits: Tensor, mask: Tensor, state: State) -> Tensor:
        if self._works_on_batches(estimator):
            return self._vmapped(estimator.objective, logits, mask, state)  # type: ignore[no-any-return]
        losses = estimator.loss(logits.flatten(0, 1), mask.flatten(0, 1), _flat_state(state))
        return losses.view(logits.shape[:2]).mean(0)

    def _update(self, estimator: Estimator, logits: Tensor, mask: Tensor, state: State) -> State:
        if self._works_on_batches(estimator):
            new = self._vmapped(estimator.update, logits, mask, state)
            return {name: v if name in self._shared_names else v.movedim(0, 1) for name, v in new.items()}
        new = estimator.update(logits.flatten(0, 1), mask.flatten(0, 1), _flat_state(state))
        return {name: value.unflatten(0, logits.shape[:2]) for name, value in new.items()}

    def _works_on_batches(self, estimator: Estimator) -> bool:
        return bool(self._shared_names) or type(estimator).objective is not Estimator.objective

    def _vmapped(self, function: Callable[..., Any], logits: Tensor, mask: Tensor, state: State) -> Any:
        dims = {
            name: None if value.ndim == 0 else 0 if name in self._shared_names else 1 for name, value in state.items()
        }
        return torch.vmap(function, in_dims=(1, 1, dims), randomness="error")(logits, mask, state)


def equal_neighbours(estimators: Sequence[Estimator]) -> list[tuple[Estimator, int, int]]:
    """Return (estimator, start, stop) for each run of equal ones."""
    blocks: list[tuple[Estimator, int, int]] = []
    for place, estimator in enumerate(estimators):
        if blocks and blocks[-1][0] == estimator:
            blocks[-1] = (estimator, blocks[-1][1], place + 1)
        else:
            blocks.append((estimator, place, place + 1))
    return blocks


def same_sets(one: CandidateSets, other: CandidateSets) -> bool:
    """Return whether two collections hold the same sets."""
    return one is other or (torch.equal(one.sizes, other.sizes) and one.content_hash == other.content_hash)


def _flat_state(state: State) -> State:
    return {name: value if value.ndim == 0 else value.flatten(0, 1) for name, value in state.items()}
