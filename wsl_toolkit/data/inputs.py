"""Where a network's inputs come from: numbers or bytes in memory, or a file that is larger than memory.

The loop asks for shuffled chunks of some thousand examples and cuts batches from them as contiguous views: one large
gather costs a fraction of many small ones.
"""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from wsl_toolkit.data.mapped import let_go

CHUNK_CELLS = 2**22
"""A chunk holds about this many numbers: large enough to gather well, small enough for a processor's cache."""

READ_AHEAD = 2
"""So many chunks are read, or ready, before they are wanted."""

ROWS_AT_ONCE = 256
"""So many rows of a file are in memory at a time before what was read of it is let go."""

BLOCK_CELLS = 2**16
"""Bytes are scaled so many at a time."""


Place = TypeVar("Place")


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

    def chunks(self, indices: Sequence[Tensor], *, ahead: bool = False) -> Iterator[Tensor]:
        """Return examples for each index in turn; a chunk is good only until the next is asked for.

        With `ahead`, a second thread may gather the next while one is used.
        """
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
        self._buffers: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self._tensor.shape[1:])

    def gather(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Return some examples."""
        return self._laid_out(torch.index_select(self._tensor, 0, index, out=out))

    def chunks(self, indices: Sequence[Tensor], *, ahead: bool = False) -> Iterator[Tensor]:
        """Return examples for each index in turn, all in one buffer: fresh memory for each would cost page faults.

        With `ahead` there are two buffers: one is filled while the other is used.
        """
        ahead = ahead and len(indices) > 1
        longest = max((len(index) for index in indices), default=0)
        self._buffers = [buffer for buffer in self._buffers if len(buffer) >= longest]
        while len(self._buffers) < 1 + ahead:  # not one that is cut in two: autograd would take both for written to
            self._buffers.append(self._tensor.new_empty(longest, *self.shape))
        buffers = itertools.cycle(self._buffers[: 1 + ahead])
        places = [(index, buffer[: len(index)]) for index, buffer in zip(indices, buffers, strict=False)]
        return _ahead(self._filled, places, 1) if ahead else map(self._filled, places)

    @torch.no_grad()
    def _filled(self, place: tuple[Tensor, Tensor]) -> Tensor:
        index, buffer = place
        return self.gather(index, out=buffer)

    def same_as(self, other: Inputs) -> bool:
        """Return whether both are the same numbers in the same place."""
        return isinstance(other, TensorInputs) and same_tensor(self._tensor, other._tensor)

    def _laid_out(self, rows: Tensor) -> Tensor:
        return rows.contiguous(memory_format=torch.channels_last) if self._channels_last else rows


class StreamedInputs(Inputs):
    """Raw rows that become the network's chunk by chunk: images stay bytes, and files larger than memory stay files.

    `rows` may be a file mapped into memory, of which only what is needed is read; `index` picks some of them. With
    `workers`, the next chunks are read while this one trains; without, rows are in memory and are taken as they are
    wanted. Bytes are read ahead by a thread, moved to the network's device as bytes, and scaled there; other rows are
    read and transformed by processes, because transforms may be Python's.
    """

    def __init__(
        self,
        rows: Tensor,
        transform: Callable[[Tensor], Tensor] | None = None,
        *,
        index: Tensor | None = None,
        device: torch.device | str = "cpu",
        workers: int = 1,
        channels_last: bool = False,
    ) -> None:
        self._rows = rows
        self._transform = transform
        self._index = torch.arange(len(rows)) if index is None else index
        self._device = torch.device(device)
        self._workers = workers
        self._late = rows.dtype == torch.uint8
        """Whether rows travel as they are, and are transformed on the device."""
        self._there = _placed(transform, self._device) if self._late else None
        self._channels_last = False
        example = self._moved(self._read(self._index[:1]), None)
        self._shape = tuple(example.shape[1:])
        self._channels_last = channels_last and len(self._shape) == 3
        self._buffer = example.new_empty(0)
        self._whole: Tensor | None = None

    def __len__(self) -> int:
        return len(self._index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self._shape

    @property
    def nbytes(self) -> int:
        """The memory that it takes for itself; rows are whose they are, and mapped ones the system's to drop."""
        return self._index.nbytes + (0 if self._whole is None else self._whole.nbytes)

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory, and not in a file that is mapped."""
        return not self._workers

    @property
    def is_elsewhere(self) -> bool:
        """Whether rows are not where the network is."""
        return self._rows.device.type != self._device.type

    @property
    def missing_bytes(self) -> int:
        """The memory that `whole` would take yet."""
        return 4 * len(self) * int(np.prod(self._shape)) if self._whole is None else 0

    def whole(self) -> Tensor:
        """Return all of them as the network wants them; computed once, and kept."""
        if self._whole is None:
            with torch.inference_mode(False):
                out = self._buffer.new_empty(len(self), *self._shape)
            step = self.chunk_length()
            for places, part in zip(torch.arange(len(self)).split(step), out.split(step), strict=True):
                self.gather(places, out=part)
            self._whole = out
        return self._whole

    def to(self, device: torch.device | str) -> StreamedInputs:
        """Return the same inputs for a network on another device; rows stay where they are."""
        return self if torch.device(device) == self._device else self._changed(device=device)

    def resident(self, device: torch.device | str) -> StreamedInputs:
        """Return the same inputs with their own copy of their rows on a device."""
        return StreamedInputs(
            torch.index_select(self._rows, 0, self._index.to(self._rows.device)).to(device),
            self._transform,
            index=torch.arange(len(self), device=device),
            device=device,
            workers=0,
            channels_last=self._channels_last,
        )

    @property
    def row_bytes(self) -> int:
        """The memory that its rows take, as they are."""
        return len(self) * int(np.prod(self._rows.shape[1:])) * self._rows.element_size()

    def laid_out(self, channels_last: bool) -> StreamedInputs:
        """Return the same inputs, images as [H, W, C] in memory or as [C, H, W]."""
        wanted = channels_last and len(self._shape) == 3
        return self if wanted == self._channels_last else self._changed(channels_last=channels_last)

    def take(self, index: Tensor) -> StreamedInputs:
        """Return some of these inputs, which stay where they are."""
        return self._changed(index=self._index[index])

    def _changed(self, **changes: Any) -> StreamedInputs:
        same = {"index": self._index, "device": self._device, "workers": self._workers}
        return StreamedInputs(self._rows, self._transform, **{**same, "channels_last": self._channels_last, **changes})

    def gather(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Return some examples."""
        return self._moved(self._read(self._index[index.to(self._index.device)]), out)

    def chunks(self, indices: Sequence[Tensor], *, ahead: bool = False) -> Iterator[Tensor]:
        """Return examples for each index in turn, all in one buffer where they are bytes.

        From a file they are always read ahead.
        """
        places = [self._index[index.to(self._index.device)] for index in indices]
        longest = max((len(each) for each in places), default=0)
        for raw in self._fetched(places):
            yield self._moved(raw, self._room(longest)[: len(raw)] if self._late else None)

    def _fetched(self, places: Sequence[Tensor]) -> Iterator[Tensor]:
        """Return rows for each of several places in turn: read here, or ahead by a thread or by a DataLoader."""
        if not self._workers:
            return map(self._read, places)
        if self._late:
            return _ahead(self._pinned, places, READ_AHEAD)
        from torch.utils.data import DataLoader

        loader: DataLoader[Tensor] = DataLoader(
            _Chunks(self, places),
            batch_size=None,
            num_workers=self._workers,
            pin_memory=self._copies_on,
            generator=torch.Generator(),  # or each epoch would draw from the stream that dropout draws from
        )
        return iter(loader)

    @property
    def _copies_on(self) -> bool:
        """Whether the device copies from pinned memory while it computes."""
        return self._device.type == "cuda"

    def _pinned(self, places: Tensor) -> Tensor:
        rows = self._read(places)
        return rows.pin_memory() if self._copies_on else rows

    def same_as(self, other: Inputs) -> bool:
        """Return whether both are the same rows, transformed the same way."""
        return (
            isinstance(other, StreamedInputs)
            and same_tensor(self._rows, other._rows)
            and torch.equal(self._index, other._index)
            and self._transform is other._transform
        )

    def _room(self, count: int) -> Tensor:
        """Return a buffer that holds so many examples: fresh memory for each chunk would cost page faults."""
        if len(self._buffer) < count:
            layout = torch.channels_last if self._channels_last else torch.contiguous_format
            with torch.inference_mode(False):  # what is made in that mode cannot be trained on
                self._buffer = self._buffer.new_empty(count, *self._shape).to(memory_format=layout)
        return self._buffer

    @torch.no_grad()
    def _moved(self, raw: Tensor, out: Tensor | None) -> Tensor:
        """Return rows as the network wants them on its device, in `out` if that is given."""
        if not self._late:
            there = raw.to(self._device, non_blocking=True)
            there = there.contiguous(memory_format=torch.channels_last) if self._channels_last else there
            return there if out is None else out.copy_(there)
        raw = raw.to(self._device, non_blocking=True)
        if out is None:
            return self._finished(raw)
        # In blocks that stay in a processor's cache between one operation and the next.
        step = max(1, BLOCK_CELLS // max(1, raw[:1].numel()))
        for part, place in zip(raw.split(step), out.split(step), strict=True):
            place.copy_(self._finished(part))
        return out

    def _finished(self, rows: Tensor) -> Tensor:
        return self._there(rows) if self._there is not None else rows

    @torch.no_grad()
    def _read(self, places: Tensor) -> Tensor:
        """Return rows in the given order; from a file they are read in the order in which they lie there."""
        if not self._workers:
            found = torch.index_select(self._rows, 0, places)
        else:
            found = self._rows.new_empty(len(places), *self._rows.shape[1:])
            for part in torch.argsort(places).split(ROWS_AT_ONCE):
                found[part] = self._rows[places[part]]
                let_go(self._rows)  # the system maps the neighbours of what is read, too
        return found if self._late or self._transform is None else self._transform(found)


def _ahead(read: Callable[[Place], Tensor], places: Sequence[Place], count: int) -> Iterator[Tensor]:
    """Return what is read at each of several places in turn; a thread reads the next `count` while one is used."""
    waiting: deque[Future[Tensor]] = deque()
    with ThreadPoolExecutor(max_workers=1) as pool:
        for place in places:
            waiting.append(pool.submit(read, place))
            if len(waiting) > count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _Chunks(torch.utils.data.Dataset[Tensor]):
    """The chunks of one epoch as a dataset whose items are whole chunks."""

    def __init__(self, inputs: StreamedInputs, places: Sequence[Tensor]) -> None:
        self.inputs = inputs
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> Tensor:
        return self.inputs._read(self.places[number])


def _placed(transform: Callable[[Tensor], Tensor] | None, device: torch.device) -> Callable[[Tensor], Tensor] | None:
    """Return a transform for rows on a device: itself on the CPU, elsewhere a copy that lies there."""
    if device.type == "cpu" or not isinstance(transform, nn.Module):
        return transform
    return copy.deepcopy(transform).to(device)


def as_inputs(given: Tensor | Inputs, channels_last: bool = False) -> Inputs:
    """Return inputs for the loop from what the caller has."""
    if isinstance(given, StreamedInputs) and channels_last:
        return given.laid_out(channels_last)
    return given if isinstance(given, Inputs) else TensorInputs(given, channels_last)


def same_tensor(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same memory, seen the same way."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()
