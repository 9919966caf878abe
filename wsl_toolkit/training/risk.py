"""Risk: an estimator at work, with its state as buffers, so that checkpoints and device moves carry it."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.errors import PluginError
from wsl_toolkit.labels.candidate_sets import CHUNK_CELLS, CandidateSets
from wsl_toolkit.labels.storage import DENSE_LIMIT, ragged_positions


class LiveRisk(Protocol):
    """What the training loop asks of a risk: one model's, or a stack of many."""

    @property
    def estimator(self) -> Any:
        """Something with an estimator's `objective`, `update`, `update_when` and `needs`."""

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
    memory and what the shared state is, so that both are the same on any number of ranks.
    """

    def __init__(self, estimator: Estimator, candidates: CandidateSets, *, whole: CandidateSets | None = None) -> None:
        super().__init__()
        whole = candidates if whole is None else whole
        self.estimator = estimator
        self.candidates = candidates
        self._compact = frozenset[str]()
        if len(whole) * whole.num_classes > DENSE_LIMIT:
            self._compact = estimator.on_candidates
        self.row_names = self._fill_rows()
        shared = estimator.init_shared(whole)
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
            for name, rows in self.estimator.init_state(mask).items():
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

    def after_epoch(self, index: Tensor, epoch: int, seed: Tensor) -> None:
        """Let the estimator look at the rows of all examples of `index` at once, and take what it returns."""
        mask, rows = self.gather(index)
        state = {**self.shared(), **rows, **loop_state(self.estimator, epoch, mask.device, seed)}
        self.write_batch(self.estimator.after_epoch(mask, state), rows)
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
