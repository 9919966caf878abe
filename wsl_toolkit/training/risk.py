"""Risk: an estimator at work, with its state as buffers, so that checkpoints and device moves carry it."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.errors import ConfigError, PluginError
from wsl_toolkit.labels.candidate_sets import CHUNK_CELLS, CandidateSets
from wsl_toolkit.labels.storage import DENSE_LIMIT, ragged_positions
from wsl_toolkit.training.devices import widest
from wsl_toolkit.training.first_batch import look_back

WEIGHT = "example_weight"
"""The row of the state that says how much an example counts, where the engine weighs the losses."""
ASKED = "weights"
"""The same where an estimator asks for it, and weighs them itself."""


class LiveRisk(Protocol):
    """What the training loop asks of a risk: one model's, or a stack of many."""

    @property
    def weighted(self) -> bool:
        """Whether examples have weights, which then are a row of the state."""

    @property
    def estimator(self) -> Any:
        """Something with an estimator's `objective`, `update`, `update_when` and `needs`."""

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of state that each example has."""

    def shared(self) -> State:
        """Return the shared state."""

    def gather(self, index: Tensor) -> tuple[Tensor, State]:
        """Return the masks and the state rows of some examples, as copies to work on."""

    def scatter(self, index: Tensor, mask: Tensor, rows: State) -> None:
        """Write state rows back."""

    def write_batch(self, new: State, rows: State) -> None:
        """Take an update: rows into the batch's views, shared values into their buffers."""


class Risk(nn.Module):
    """Owns an estimator's state: per-example rows (dense, or on candidates only) and shared tensors.

    Where the candidates are one rank's part of a collection, `whole` is that collection: it decides how rows lie in
    memory and what the shared state is, so that both are the same on any number of ranks. `weights` [n] say how much
    each example counts, of the whole collection; their mean is brought to one.
    """

    def __init__(
        self,
        estimator: Estimator,
        candidates: CandidateSets,
        *,
        whole: CandidateSets | None = None,
        weights: Tensor | None = None,
        index: Tensor | None = None,
        feature_width: int | None = None,
    ) -> None:
        """Ask for the first state; `index` are the examples' places in the whole, all of them if it is not given."""
        super().__init__()
        whole = candidates if whole is None else whole
        self.estimator = estimator
        self.candidates = candidates
        self._compact = frozenset[str]()
        if len(whole) * whole.num_classes > DENSE_LIMIT:
            self._compact = estimator.on_candidates
        self.row_names = self._fill_rows()
        asks = ASKED in estimator.needs
        self.weighted = weights is not None and not asks
        if weights is not None or asks:
            rows = _weights(estimator, weights, len(whole)).to(candidates.sizes.device)
            self._add_row(ASKED if asks else WEIGHT, rows if index is None else rows[index])
        if "index" in estimator.needs:
            places = torch.arange(len(candidates)) if index is None else index
            self._add_row("index", places.to(candidates.sizes.device))
        shared = estimator.init_shared(whole)
        if feature_width is not None:
            shared = {**shared, **estimator.init_features(whole, feature_width)}
        if "class_prior" in estimator.needs:
            shared = {**shared, "class_prior": class_prior(whole)}
        self._shared_names = tuple(shared)
        for name, value in shared.items():
            self.register_buffer(f"shared_{name}", value.clone())

    @property
    def is_compact(self) -> bool:
        """Whether some state lies on candidates only."""
        return bool(self._compact)

    @property
    def compact_names(self) -> frozenset[str]:
        """The state rows that lie on candidates only."""
        return self._compact & frozenset(self.row_names)

    def _fill_rows(self) -> tuple[str, ...]:
        """Ask for the first state piece by piece, so that [n, K] is never dense where it need not be."""
        parts: dict[str, list[Tensor]] = {}
        step = max(1, CHUNK_CELLS // self.candidates.num_classes)
        for start in range(0, len(self.candidates), step):
            mask = self.candidates.mask(slice(start, start + step))
            first: Any = self.estimator.init_state(mask)
            if not isinstance(first, dict):
                got = type(first).__name__
                raise PluginError(f"estimator {self.estimator.name}: init_state must return a dictionary, not {got}")
            for name, rows in first.items():
                if len(rows) != len(mask):
                    raise PluginError(
                        f"estimator {self.estimator.name}: init_state gave {name!r} {len(rows)} rows for "
                        f"{len(mask)} examples; state that no example owns belongs in init_shared"
                    )
                parts.setdefault(name, []).append(rows[mask] if name in self._compact else rows.clone())
        for name, pieces in parts.items():
            self.register_buffer(f"row_{name}", torch.cat(pieces))
        if self._compact:
            offsets = torch.nn.functional.pad(self.candidates.sizes.cumsum(0), (1, 0))
            self.register_buffer("_offsets", offsets, persistent=False)
        return tuple(parts)

    def _add_row(self, name: str, rows: Tensor) -> None:
        """Give every example a value of the engine's."""
        if name in self.row_names:
            raise PluginError(
                f"estimator {self.estimator.name}: init_state returned {name!r}, which is what the engine gives it by "
                "that name: rename one's own"
            )
        self.register_buffer(f"row_{name}", rows)
        self.row_names = (*self.row_names, name)

    def shared(self) -> State:
        """Return the shared state."""
        return {name: self.get_buffer(f"shared_{name}") for name in self._shared_names}

    def gather(self, index: Tensor) -> tuple[Tensor, State]:
        """Return the mask [B, K] and the state rows of some examples, as copies to work on."""
        mask = self.candidates.mask(index)
        rows: State = {}
        for name in self.row_names:
            buffer = self.get_buffer(f"row_{name}")
            if name in self._compact:
                positions, _ = ragged_positions(self.get_buffer("_offsets"), index)
                dense = torch.zeros(mask.shape, dtype=buffer.dtype, device=buffer.device)
                rows[name] = dense.masked_scatter_(mask, buffer[positions])
            else:
                rows[name] = buffer.index_select(0, index)
        return mask, rows

    def scatter(self, index: Tensor, mask: Tensor, rows: State) -> None:
        """Write state rows back."""
        for name, value in rows.items():
            buffer = self.get_buffer(f"row_{name}")
            if name in self._compact:
                positions, _ = ragged_positions(self.get_buffer("_offsets"), index)
                buffer[positions] = value[mask]
            else:
                buffer.index_copy_(0, index, value)

    def visited(self) -> Tensor:
        """Return the examples that training visits: those whose set says something, or all, if the estimator asks."""
        if "unlabelled" in self.estimator.needs:
            return torch.arange(len(self.candidates), device=self.candidates.sizes.device)
        return self.candidates.labelled()

    def report(self) -> dict[str, float]:
        """Return what the estimator wants to log of its state."""
        rows = {name: self.get_buffer(f"row_{name}") for name in self.row_names if name not in self._compact}
        found = self.estimator.report({**self.shared(), **rows})
        return {f"estimator/{name}": float(value) for name, value in found.items()}

    def after_epoch(self, index: Tensor, epoch: int, seed: Tensor, logits: State | None = None) -> None:
        """Let the estimator look at the rows of all examples of `index` at once, and take what it returns.

        `logits` are those of all examples, by the names that the estimator gets them by.
        """
        mask, rows = self.gather(index)
        state = {**self.shared(), **rows, **loop_state(self.estimator, epoch, mask.device, seed)}
        state |= logits or {}
        owned = frozenset({*self._shared_names, *self.row_names})
        self.write_batch(look_back(self.estimator, mask, state, owned), rows)
        self.scatter(index, mask, rows)

    def write_batch(self, new: State, rows: State) -> None:
        """Take an update: rows into the batch's views, shared values into their buffers."""
        for name, value in new.items():
            if name in rows:
                rows[name].copy_(value)
            elif name in self._shared_names:
                self.get_buffer(f"shared_{name}").copy_(value)
            else:
                raise PluginError(
                    f"estimator {self.estimator.name}: {name!r} was returned, which neither init_state nor "
                    "init_shared declared"
                )


def _weights(estimator: Estimator, weights: Tensor | None, n: int) -> Tensor:
    """Return how much each example counts, 1 on average; refuse what cannot be weighed."""
    if weights is None:
        return torch.ones(n)
    if ASKED not in estimator.needs and type(estimator).objective is not Estimator.objective:
        raise ConfigError(
            f"estimator {estimator.name} works on whole batches, in which examples cannot be weighted unless it says "
            f"that it needs '{ASKED}'"
        )
    mean = weights.to(widest(weights.device)).mean()
    if not bool(mean > 0):
        raise ConfigError("the weights of all training examples are 0: there is nothing to learn from")
    return (weights / mean).float()


def class_prior(candidates: CandidateSets) -> Tensor:
    """Return the share of each class if every candidate of a set were equally likely, [K]; full sets say nothing."""
    index = candidates.labelled()
    device = candidates.sizes.device
    total = torch.zeros(candidates.num_classes, dtype=widest(device), device=device)
    for part in index.split(max(1, CHUNK_CELLS // candidates.num_classes)):
        mask = candidates.mask(part)
        total += (mask / mask.sum(1, keepdim=True)).to(total.dtype).sum(0)
    if len(index) == 0:
        return torch.full_like(total, 1 / candidates.num_classes).float()
    return (total / total.sum()).float()


def loop_state(estimator: Any, epoch: int, device: torch.device, seed: Tensor | None = None) -> State:
    """Return the state that the loop itself provides, as far as an estimator needs it.

    `seed` is given where no network is at work that would draw one, such as after an epoch.
    """
    state: State = {}
    if "epoch" in estimator.needs:
        state["epoch"] = torch.tensor(float(epoch), device=device)
    if seed is not None and "seed" in estimator.needs:
        state["seed"] = seed.to(device)
    return state
