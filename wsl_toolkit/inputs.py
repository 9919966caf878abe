"""Where a network's inputs come from: a tensor in memory, or a file that is larger than memory.

The loop asks for shuffled slabs of some thousand examples and cuts batches from them as contiguous views: one large
gather costs a fraction of many small ones.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.errors import DataError, one_line

SLAB_CELLS = 2**22
"""A slab holds about this many numbers: large enough to gather well, small enough for a processor's cache."""


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

    def slabs(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """Return examples for each index in turn; a slab is good only until the next is asked for."""
        return map(self.gather, indices)

    def same_as(self, other: Inputs) -> bool:
        """Return whether both are certainly the same inputs."""
        return self is other

    def slab_length(self, batch_size: int = 1) -> int:
        """Return how many examples make a slab, a multiple of the batch size."""
        cells = max(1, int(np.prod(self.shape)))
        return batch_size * max(1, SLAB_CELLS // (cells * batch_size))


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

    def slabs(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
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


class MemoryMappedInputs(Inputs):
    """Inputs in a file that is mapped, not read; a worker process fetches the next slabs while this one trains.

    `transform` turns stored rows (bytes, say) into what the network wants; it must be picklable.
    """

    def __init__(self, path: Path, transform: Callable[[Tensor], Tensor] | None = None, workers: int = 1) -> None:
        self.path = path
        self.transform = transform
        self.workers = workers
        try:
            self._rows: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise DataError(f"no cached inputs at {path}") from None
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} holds no readable inputs: {one_line(error)}; delete it to build it anew") from None
        self._shape = tuple(self.gather(torch.zeros(1, dtype=torch.int64)).shape[1:])

    @classmethod
    def write(cls, path: Path, parts: Iterable[Tensor], n: int) -> None:
        """Write `n` examples, given part by part, as one file; readers see all of it or nothing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        rows: np.memmap | None = None
        done = 0
        try:
            for part in parts:
                if rows is None:
                    shape = (n, *part.shape[1:])
                    rows = np.lib.format.open_memmap(temporary, mode="w+", dtype=part.numpy().dtype, shape=shape)
                if done + len(part) > n:
                    raise DataError(f"{path.name}: more than the announced {n} examples came")
                rows[done : done + len(part)] = part.numpy()
                done += len(part)
            if rows is None or done != n:
                raise DataError(f"{path.name}: {done} examples came where {n} were announced")
            rows.flush()
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self._shape

    def gather(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Return some examples, read in the order in which they lie on disk."""
        by_place = torch.argsort(index)
        rows = torch.from_numpy(self._rows[index[by_place].numpy()])
        wanted = torch.empty_like(rows)
        wanted[by_place] = rows
        wanted = self.transform(wanted) if self.transform else wanted
        return wanted if out is None else out.copy_(wanted)

    def slabs(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """Return examples for each index in turn, fetched ahead by a DataLoader."""
        from torch.utils.data import DataLoader

        return iter(DataLoader(_Slabs(self, indices), batch_size=None, num_workers=self.workers))

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "transform": self.transform, "workers": self.workers}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a worker maps the file again


class _Slabs(torch.utils.data.Dataset[Tensor]):
    """The slabs of one epoch as a dataset whose items are whole slabs."""

    def __init__(self, inputs: MemoryMappedInputs, indices: Sequence[Tensor]) -> None:
        self.inputs = inputs
        self.indices = indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int) -> Tensor:
        return self.inputs.gather(self.indices[place])


def as_inputs(given: Tensor | Inputs, channels_last: bool = False) -> Inputs:
    """Return inputs for the loop from what the caller has."""
    return given if isinstance(given, Inputs) else TensorInputs(given, channels_last)


def same_tensor(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same memory, seen the same way."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
