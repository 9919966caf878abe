"""How candidate sets lie in memory: a byte, a bit, or an index for each candidate.

All three answer the same two questions, `rows(index)` as a boolean mask and `tensors()` for a file,
and the choice between them is only a matter of size; nothing outside `labels` needs to know it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

import torch
from torch import Tensor

DENSE_LIMIT = 2**26
"""Up to this many cells a byte each is cheap, and rows are one gather away."""


class Store(Protocol):
    """n sets over K classes."""

    kind: ClassVar[str]

    def __len__(self) -> int: ...

    def rows(self, index: Tensor | slice) -> Tensor:
        """Return the boolean mask [B, K] of some sets."""

    def sizes(self) -> Tensor:
        """Return how many candidates each set has, int64 [n]."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that make up the store."""

    def to(self, device: torch.device | str) -> Store:
        """Return the same sets on another device."""


class DenseStore:
    """One byte a cell: a boolean matrix [n, K]."""

    kind: ClassVar[str] = "dense"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def __len__(self) -> int:
        return self.mask.shape[0]

    def rows(self, index: Tensor | slice) -> Tensor:
        """Return the boolean mask [B, K] of some sets."""
        # Much faster than indexing, which also has to think of several indices and of negative ones.
        return self.mask.index_select(0, index) if isinstance(index, Tensor) else self.mask[index]

    def sizes(self) -> Tensor:
        """Return how many candidates each set has, int64 [n]."""
        return self.mask.sum(1)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that make up the store."""
        return {"mask": self.mask}

    def to(self, device: torch.device | str) -> DenseStore:
        """Return the same sets on another device."""
        return DenseStore(self.mask.to(device))


class PackedStore:
    """One bit a cell: best when sets are large, as complementary labels are."""

    kind: ClassVar[str] = "packed"

    def __init__(self, bits: Tensor, num_classes: int) -> None:
        self.bits = bits
        self.num_classes = num_classes

    @classmethod
    def from_mask(cls, mask: Tensor) -> PackedStore:
        """Pack a boolean mask."""
        n, num_classes = mask.shape
        padded = torch.nn.functional.pad(mask, (0, -num_classes % 8)).view(n, -1, 8)
        weights = 2 ** torch.arange(8, device=mask.device, dtype=torch.uint8)
        return cls((padded * weights).sum(-1, dtype=torch.uint8), num_classes)

    def __len__(self) -> int:
        return self.bits.shape[0]

    def rows(self, index: Tensor | slice) -> Tensor:
        """Return the boolean mask [B, K] of some sets."""
        chosen = self.bits[index]
        shifts = torch.arange(8, device=chosen.device, dtype=torch.uint8)
        unpacked = (chosen.unsqueeze(-1) >> shifts) & 1
        return unpacked.flatten(1)[:, : self.num_classes].bool()

    def sizes(self) -> Tensor:
        """Return how many candidates each set has, int64 [n]."""
        return torch.cat([count_bits(part).sum(1) for part in self.bits.split(2**16)])

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that make up the store."""
        return {"bits": self.bits}

    def to(self, device: torch.device | str) -> PackedStore:
        """Return the same sets on another device."""
        return PackedStore(self.bits.to(device), self.num_classes)


class SparseStore:
    """One index a candidate: best when sets are small and classes many."""

    kind: ClassVar[str] = "sparse"

    def __init__(self, offsets: Tensor, classes: Tensor, num_classes: int) -> None:
        self.offsets = offsets
        self.classes = classes
        self.num_classes = num_classes

    @classmethod
    def from_mask(cls, mask: Tensor) -> SparseStore:
        """List the candidates of a boolean mask, row by row."""
        offsets = torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))
        classes = mask.nonzero()[:, 1].to(index_dtype(mask.shape[1]))
        return cls(offsets, classes, mask.shape[1])

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    def rows(self, index: Tensor | slice) -> Tensor:
        """Return the boolean mask [B, K] of some sets."""
        if isinstance(index, slice):
            index = torch.arange(len(self), device=self.offsets.device)[index]
        position, row = ragged_positions(self.offsets, index)
        mask = torch.zeros(len(index), self.num_classes, dtype=torch.bool, device=self.classes.device)
        mask[row, self.classes[position].long()] = True
        return mask

    def sizes(self) -> Tensor:
        """Return how many candidates each set has, int64 [n]."""
        return self.offsets.diff()

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that make up the store."""
        return {"offsets": self.offsets, "classes": self.classes}

    def to(self, device: torch.device | str) -> SparseStore:
        """Return the same sets on another device."""
        return SparseStore(self.offsets.to(device), self.classes.to(device), self.num_classes)


def count_bits(bytes_: Tensor) -> Tensor:
    """Return how many bits are set in each byte, uint8: they are added in pairs, then fours, then eights."""
    pairs = bytes_ - ((bytes_ >> 1) & 0x55)
    fours = (pairs & 0x33) + ((pairs >> 2) & 0x33)
    return (fours + (fours >> 4)) & 0x0F


def index_dtype(num_classes: int) -> torch.dtype:
    """Return the smallest signed integer type that can name every class."""
    return torch.int16 if num_classes <= torch.iinfo(torch.int16).max else torch.int32


def ragged_positions(offsets: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the entries of ragged rows `index` lie in the flat array, and which row each is of."""
    counts = offsets[index + 1] - offsets[index]
    row = torch.repeat_interleave(torch.arange(len(index), device=index.device), counts)
    starts = offsets[index] - (counts.cumsum(0) - counts)
    return torch.arange(len(row), device=index.device) + starts[row], row


def choose_kind(n: int, num_classes: int, candidates_in_all: int) -> str:
    """Return the storage that holds these sets in the least memory, dense where memory is no matter."""
    if n * num_classes <= DENSE_LIMIT:
        return "dense"
    sparse = candidates_in_all * index_dtype(num_classes).itemsize + 8 * n
    return "sparse" if sparse < n * ((num_classes + 7) // 8) else "packed"


def build(mask: Tensor, kind: str) -> Store:
    """Store a boolean mask as `kind`."""
    if kind == "dense":
        return DenseStore(mask)
    return PackedStore.from_mask(mask) if kind == "packed" else SparseStore.from_mask(mask)


def collect(masks: Iterable[Tensor], kind: str, n: int, num_classes: int) -> Store:
    """Store n rows of boolean masks that come piece by piece as `kind`.

    What is kept is allocated before the second piece is drawn: small kept tensors between the large ones that come and
    go would tear the heap into pieces, at several times the memory.
    """
    if kind == "sparse":
        return _join_sparse([SparseStore.from_mask(mask) for mask in masks], num_classes)
    whole: Tensor | None = None
    done = 0
    for mask in masks:
        piece = mask if kind == "dense" else PackedStore.from_mask(mask).bits
        if whole is None:
            whole = piece.new_empty(n, piece.shape[1])
        whole[done : done + len(piece)] = piece
        done += len(piece)
    if whole is None or done != n:
        raise ValueError(f"{done} sets came, not {n}")
    return DenseStore(whole) if kind == "dense" else PackedStore(whole, num_classes)


def _join_sparse(parts: list[SparseStore], num_classes: int) -> SparseStore:
    """Concatenate lists of candidates."""
    counts = torch.cat([part.sizes() for part in parts])
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return SparseStore(offsets, torch.cat([part.classes for part in parts]), num_classes)


def from_tensors(kind: str, tensors: dict[str, Tensor], num_classes: int) -> Store:
    """Rebuild a store from `tensors()`; what no store would write is a ValueError."""
    if kind == "dense":
        return DenseStore(tensors["mask"].bool())
    if kind == "packed":
        bits = tensors["bits"]
        if num_classes % 8 and bool((bits[:, -1] >> (num_classes % 8)).any()):
            raise ValueError("there are bits beyond the last class")
        return PackedStore(bits, num_classes)
    if kind != "sparse":
        raise ValueError(f"there is no storage {kind!r}")
    offsets, classes = tensors["offsets"], tensors["classes"]
    counts = offsets.diff()
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(classes) or bool((counts < 0).any()):
        raise ValueError("sets do not follow each other")
    row = torch.repeat_interleave(torch.arange(len(counts)), counts)
    inside = bool(((classes >= 0) & (classes < num_classes)).all())
    if not inside or bool((row * num_classes + classes).diff().le(0).any()):
        raise ValueError("the classes of a set are not in order, or out of range")
    return SparseStore(offsets, classes, num_classes)
