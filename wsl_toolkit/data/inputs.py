"""Where a network's inputs come from: a tensor in memory, or a file that is larger than memory.

The loop asks for shuffled chunks of some thousand examples and cuts batches from them as contiguous views: one large
gather costs a fraction of many small ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

CHUNK_CELLS = 2**22
"""A chunk holds about this many numbers: large enough to gather well, small enough for a processor's cache."""


class Inputs(ABC):
    """n inputs of one shape, by index."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""

    @abstractmethod
    def gather(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Return some examples as the network wants them, [B, …], in `out` if that is given."""

    def chunks(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """Return examples for each index in turn; a chunk is good only until the next is asked for."""
        return map(self.gather, indices)

    def same_as(self, other: Inputs) -> bool:
        """Return whether both are certainly the same inputs."""
        return self is other

    def chunk_length(self, batch_size: int = 1) -> int:
        """Return how many examples make a chunk, a multiple of the batch size."""
        cells = max(1, int(np.prod(self.shape)))
        return batch_size * max(1, CHUNK_CELLS // (cells * batch_size))


class TensorInputs(Inputs):
    """Inputs in memory."""

    def __init__(self, tensor: Tensor, channels_last: bool = False) -> None:
        self._tensor = tensor
        self._channels_last = channels_last and tensor.ndim == 4
        self._buffer = tensor.new_empty(0)

    def __len__(self) -> int:
        return len(self._tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self._tensor.shape[1:])

    def gather(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Return some examples."""
        return self._laid_out(torch.index_select(self._tensor, 0, index, out=out))

    def chunks(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """Return examples for each index in turn, all in one buffer: fresh memory for each would cost page faults."""
        longest = max((len(index) for index in indices), default=0)
        if len(self._buffer) < longest:
            self._buffer = self._tensor.new_empty(longest, *self.shape)
        for index in indices:
            yield self.gather(index, out=self._buffer[: len(index)])

    def same_as(self, other: Inputs) -> bool:
        """Return whether both are the same numbers in the same place."""
        return isinstance(other, TensorInputs) and same_tensor(self._tensor, other._tensor)

    def _laid_out(self, rows: Tensor) -> Tensor:
        return rows.contiguous(memory_format=torch.channels_last) if self._channels_last else rows


class StreamedInputs(Inputs):
    """Raw rows that become the network's chunk by chunk, for inputs that do not fit into memory as float32.

    `rows` may be a file mapped into memory, of which only what is needed is read; `index` picks some
    of them. A worker process reads and transforms the next chunks while this one trains.
    """

    def __init__(
        self,
        rows: Tensor,
        transform: Callable[[Tensor], Tensor] | None = None,
        *,
        index: Tensor | None = None,
        device: torch.device | str = "cpu",
        workers: int = 1,
    ) -> None:
        self._rows = rows
        self._transform = transform
        self._index = torch.arange(len(rows)) if index is None else index
        self._device = torch.device(device)
        self._workers = workers
        self._shape = tuple(self._read(self._index[:1]).shape[1:])

    def __len__(self) -> int:
        return len(self._index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """The memory that it takes for itself; mapped rows are the system's to keep or to drop."""
        return self._index.nbytes

    def to(self, device: torch.device | str) -> StreamedInputs:
        """Return the same inputs for a network on another device; rows stay where they are."""
        return StreamedInputs(self._rows, self._transform, index=self._index, device=device, workers=self._workers)

    def take(self, index: Tensor) -> StreamedInputs:
        """Return some of these inputs, which stay where they are."""
        return StreamedInputs(
            self._rows, self._transform, index=self._index[index], device=self._device, workers=self._workers
        )

    def gather(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Return some examples."""
        found = self._read(self._index[index.cpu()]).to(self._device)
        return found if out is None else out.copy_(found)

    def chunks(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """Return examples for each index in turn, fetched ahead by a DataLoader."""
        from torch.utils.data import DataLoader

        places = [self._index[index.cpu()] for index in indices]
        loader: DataLoader[Tensor] = DataLoader(
            _Chunks(self, places),
            batch_size=None,
            num_workers=self._workers,
            generator=torch.Generator(),  # or each epoch would draw from the stream that dropout draws from
        )
        return (chunk.to(self._device) for chunk in loader)

    def same_as(self, other: Inputs) -> bool:
        """Return whether both are the same rows, transformed the same way."""
        return (
            isinstance(other, StreamedInputs)
            and same_tensor(self._rows, other._rows)
            and torch.equal(self._index, other._index)
            and self._transform is other._transform
        )

    @torch.no_grad()
    def _read(self, places: Tensor) -> Tensor:
        """Return rows in the given order, read in the order in which they lie on disk."""
        by_place = torch.argsort(places)
        read = self._rows[places[by_place]]
        wanted = torch.empty_like(read)
        wanted[by_place] = read
        return self._transform(wanted) if self._transform else wanted


class _Chunks(torch.utils.data.Dataset[Tensor]):
    """The chunks of one epoch as a dataset whose items are whole chunks."""

    def __init__(self, inputs: StreamedInputs, places: Sequence[Tensor]) -> None:
        self.inputs = inputs
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> Tensor:
        return self.inputs._read(self.places[number])


def as_inputs(given: Tensor | Inputs, channels_last: bool = False) -> Inputs:
    """Return inputs for the loop from what the caller has."""
    return given if isinstance(given, Inputs) else TensorInputs(given, channels_last)


def same_tensor(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same memory, seen the same way."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
