"""CandidateSets: the one label type; its invariants are checked once, at its door.

A candidate set holds the classes that an example may belong to. Sets are never empty. A full set says
nothing about its example (an unlabelled one): it is admitted, weighs nothing in training, and is counted.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.errors import LabelError
from wsl_toolkit.labels import storage
from wsl_toolkit.labels.parsing import check_names, read_mask, read_sets, read_sparse_matrix
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.system.json_files import parse_json

CHUNK_CELLS = 2**22
"""Whole-collection passes go by chunks of this many cells, so that they need little memory of their own."""


class CandidateSets:
    """n non-empty sets of candidate classes out of K; immutable."""

    def __init__(self, store: storage.Store, num_classes: int, class_names: Sequence[str] | None = None) -> None:
        self._store = store
        self.num_classes = num_classes
        self.class_names = check_names(class_names, num_classes)
        self.sizes = store.sizes()
        """|s| of every example, int64 [n]."""
        if len(self) == 0:
            raise LabelError("there are no candidate sets: the collection is empty")
        empty = (self.sizes == 0).nonzero().flatten()
        if len(empty):
            raise LabelError(
                f"candidate set of example {int(empty[0])} is empty ({len(empty)} of {len(self)} are): "
                "give every example at least one candidate, or all classes if nothing is known of it"
            )
        if num_classes < 2:
            raise LabelError(f"candidate sets need at least 2 classes to choose from, not {num_classes}")

    # ------------------------------------------------------------------ in

    @classmethod
    def from_mask(cls, mask: Any, class_names: Sequence[str] | None = None) -> CandidateSets:
        """Take a boolean or 0/1 matrix [n, K]: tensor, array, nested list or scipy sparse matrix."""
        if hasattr(mask, "tocsr"):
            return cls._from_sparse(read_sparse_matrix(mask), class_names)
        tensor = read_mask(mask)
        kind = storage.choose_kind(len(tensor), tensor.shape[1], int(tensor.sum()))
        return cls(storage.build(tensor, kind), tensor.shape[1], class_names)

    @classmethod
    def from_chunks(
        cls,
        masks: Iterable[Tensor],
        n: int,
        num_classes: int,
        class_names: Sequence[str] | None = None,
        *,
        candidates_in_all: int | None = None,
    ) -> CandidateSets:
        """Take boolean masks piece by piece, so that n x K need never be dense in memory."""
        pieces = iter(masks)
        first = next(pieces, torch.zeros(0, num_classes, dtype=torch.bool))
        if candidates_in_all is None:  # the first piece speaks for the rest
            candidates_in_all = int(first.sum()) * n // max(len(first), 1)
        kind = storage.choose_kind(n, num_classes, candidates_in_all)
        store = storage.collect(itertools.chain([first], pieces), kind, n, num_classes)
        return cls(store, num_classes, class_names)

    @classmethod
    def from_sets(
        cls,
        sets: Sequence[Iterable[Any]],
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> CandidateSets:
        """Take one iterable of classes an example, as integers or as class names."""
        return cls._from_sparse(read_sets(sets, num_classes, class_names), class_names)

    @classmethod
    def from_complementary(
        cls, labels: Any, num_classes: int | None = None, class_names: Sequence[str] | None = None
    ) -> CandidateSets:
        """Take "not this class" answers: one class an example (1-D), or an iterable of them, which may be empty."""
        if num_classes is None and class_names is None:
            raise LabelError("complementary labels need num_classes or class_names: they do not name every class")
        values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
        try:
            excluded = read_sets([v if is_collection(v) else [v] for v in values], num_classes, class_names)
        except LabelError as error:
            raise LabelError(f"complementary labels: {error}") from None
        n, k = len(excluded), excluded.num_classes
        step = max(1, CHUNK_CELLS // k)
        masks = (~excluded.rows(slice(start, start + step)) for start in range(0, max(n, 1), step))
        return cls.from_chunks(masks, n, k, class_names, candidates_in_all=n * k - len(excluded.classes))

    @classmethod
    def from_labels(cls, labels: Tensor, num_classes: int, class_names: Sequence[str] | None = None) -> CandidateSets:
        """Take ordinary labels: every set is the single true class."""
        check_labels(labels, num_classes)
        classes = labels.to(storage.index_dtype(num_classes))
        offsets = torch.arange(len(labels) + 1, device=labels.device)
        return cls._from_sparse(storage.SparseStore(offsets, classes, num_classes), class_names)

    @classmethod
    def _from_sparse(cls, sparse: storage.SparseStore, class_names: Sequence[str] | None) -> CandidateSets:
        kind = storage.choose_kind(len(sparse), sparse.num_classes, len(sparse.classes))
        if kind == "sparse":
            return cls(sparse, sparse.num_classes, class_names)
        step = max(1, CHUNK_CELLS // max(sparse.num_classes, 1))
        masks = (sparse.rows(slice(start, start + step)) for start in range(0, max(len(sparse), 1), step))
        return cls.from_chunks(
            masks, len(sparse), sparse.num_classes, class_names, candidates_in_all=len(sparse.classes)
        )

    # ----------------------------------------------------------------- out

    def mask(self, index: Tensor | slice | None = None) -> Tensor:
        """Return the boolean matrix [B, K] of some examples, or of all; not to be written to."""
        if isinstance(index, Tensor) and index.dtype == torch.bool:
            index = index.nonzero().flatten()
        return self._store.rows(slice(None) if index is None else index)

    def to_sets(self) -> list[list[int]]:
        """Return each example's candidates as sorted class indices."""
        return [classes for mask in self._chunks() for classes in _lists(mask)]

    def to_names(self) -> list[list[str]]:
        """Return each example's candidates as class names."""
        if self.class_names is None:
            raise LabelError("these candidate sets carry no class names")
        names = self.class_names
        return [[names[j] for j in candidates] for candidates in self.to_sets()]

    def to_complementary(self) -> list[list[int]]:
        """Return the classes that each example is known not to belong to."""
        return [classes for mask in self._chunks() for classes in _lists(~mask)]

    def complement(self) -> CandidateSets:
        """Return s̄ = Y \\ s for every example; a full set has none and is refused."""
        if self.full_count:
            row = int((self.sizes == self.num_classes).nonzero()[0])
            raise LabelError(f"example {row} has all {self.num_classes} classes: its complement would be empty")
        masks = (~mask for mask in self._chunks())
        total = len(self) * self.num_classes - int(self.sizes.sum())
        return CandidateSets.from_chunks(masks, len(self), self.num_classes, self.class_names, candidates_in_all=total)

    def take(self, index: Tensor) -> CandidateSets:
        """Return the sets of some examples, in that order."""
        masks = (self.mask(part) for part in index.split(self._step()))
        total = int(self.sizes[index].sum())
        return CandidateSets.from_chunks(masks, len(index), self.num_classes, self.class_names, candidates_in_all=total)

    def named(self, class_names: Sequence[str] | None) -> CandidateSets:
        """Return the same sets with these class names."""
        return CandidateSets(self._store, self.num_classes, class_names)

    def to(self, device: torch.device | str) -> CandidateSets:
        """Return the same sets on another device."""
        return CandidateSets(self._store.to(device), self.num_classes, self.class_names)

    # ------------------------------------------------------------ describe

    def __len__(self) -> int:
        return len(self._store)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CandidateSets):
            return NotImplemented
        return self.class_names == other.class_names and self.content_hash == other.content_hash

    __hash__ = None  # type: ignore[assignment]  # equality is by content; use content_hash as a key

    def __repr__(self) -> str:
        return (
            f"CandidateSets(n={len(self)}, classes={self.num_classes}, mean size={self.mean_size:.2f}, "
            f"storage={self.storage})"
        )

    def __str__(self) -> str:
        """Return the facts and the first sets, by name where classes have names."""
        shown = self.take(torch.arange(min(len(self), 5)))
        names = self.class_names or tuple(map(str, range(self.num_classes)))
        lines = [_set_text([names[j] for j in members]) for members in shown.to_sets()]
        more = [f"… and {len(self) - len(lines):,} more"] if len(self) > len(lines) else []
        head = f"{len(self):,} candidate sets of {self.num_classes} classes, mean size {self.mean_size:.2f}:"
        return "\n  ".join([head, *lines, *more])

    @property
    def storage(self) -> str:
        """How the sets lie in memory: dense, packed or sparse."""
        return self._store.kind

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the sets take, without their sizes."""
        return sum(t.numel() * t.element_size() for t in self._store.tensors().values())

    @property
    def mean_size(self) -> float:
        """The average partial-label size, mean |s|."""
        return float(self.sizes.double().mean())

    @property
    def full_count(self) -> int:
        """How many examples have every class as a candidate, that is, no label at all."""
        return int((self.sizes == self.num_classes).sum())

    def labelled(self) -> Tensor:
        """Return the indices of the examples whose set says something (is not full)."""
        return (self.sizes < self.num_classes).nonzero().flatten()

    def histogram(self) -> Tensor:
        """Return how many sets have each size, int64 [K + 1]; entry k counts |s| = k."""
        return torch.bincount(self.sizes, minlength=self.num_classes + 1)

    def class_counts(self) -> Tensor:
        """Return how many sets hold each class, int64 [K]."""
        return torch.stack([mask.sum(0) for mask in self._chunks()]).sum(0)

    def cooccurrence(self) -> Tensor:
        """Return how many sets hold both j and k, int64 [K, K]."""
        total = torch.zeros(self.num_classes, self.num_classes, dtype=torch.float64)
        for mask in self._chunks():
            cells = mask.double()
            total += (cells.T @ cells).cpu()
        return total.long()

    def given_label(self, labels: Tensor) -> Tensor:
        """Return the share of the sets of true class y that hold class z, float64 [K, K]; zero for absent y."""
        check_labels(labels, self.num_classes, n=len(self))
        joint = torch.zeros(self.num_classes, self.num_classes, dtype=torch.float64)
        for mask, part in zip(self._chunks(), labels.split(self._step()), strict=True):
            joint.index_add_(0, part.cpu(), mask.cpu().double())
        counts = torch.bincount(labels.cpu(), minlength=self.num_classes)
        return joint.div_(counts.clamp(min=1).unsqueeze(1))

    def ambiguity_degree(self, labels: Tensor) -> float:
        """Return max over y and z ≠ y of the frequency of z among the sets of class y (Cour et al., 2011)."""
        return float(self.given_label(labels).fill_diagonal_(0).max())

    @property
    def content_hash(self) -> str:
        """SHA-256 of the sets, whatever their storage and device."""
        digest = hashlib.sha256(f"wsl-candidates 1 {len(self)} {self.num_classes}".encode())
        for mask in self._chunks():
            digest.update(np.packbits(mask.cpu().numpy(), axis=1).tobytes())
        return digest.hexdigest()

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Write the sets as safetensors, atomically."""
        from safetensors.torch import save

        meta = {
            "format": "wsl-candidates-1",
            "kind": self.storage,
            "num_classes": str(self.num_classes),
            "class_names": json.dumps(self.class_names),
            "content_hash": self.content_hash,
        }
        tensors = {name: t.cpu().contiguous() for name, t in self._store.tensors().items()}
        write_atomically(Path(path), save(tensors, metadata=meta))

    @classmethod
    def load(cls, path: str | Path) -> CandidateSets:
        """Read what `save` wrote; a truncated or altered file is refused."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="pt") as file:
                meta = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise LabelError(f"no candidate sets at {path}") from None
        except (SafetensorError, OSError) as error:
            raise LabelError(f"{path} is not a readable file of candidate sets: {error}") from None
        if meta.get("format") != "wsl-candidates-1":
            raise LabelError(f"{path} is a safetensors file, but not one of candidate sets")
        try:
            num_classes, names = int(meta["num_classes"]), parse_json(meta["class_names"])
            sets = cls(storage.from_tensors(meta["kind"], tensors, num_classes), num_classes, names)
            intact = sets.content_hash == meta["content_hash"]
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            raise LabelError(f"{path} holds broken candidate sets: {error}") from None
        if not intact:
            raise LabelError(f"{path} was altered: its candidate sets do not match their recorded hash")
        return sets

    # -------------------------------------------------------------- private

    def _step(self) -> int:
        return max(1, CHUNK_CELLS // self.num_classes)

    def _chunks(self) -> Iterator[Tensor]:
        for start in range(0, max(len(self._store), 1), self._step()):
            yield self._store.rows(slice(start, start + self._step()))


def tensors_of(sets: CandidateSets) -> dict[str, Tensor]:
    """Return the tensors that sets lie in, by the names that `storage.from_tensors` knows for `sets.storage`."""
    return sets._store.tensors()


def check_labels(labels: Tensor, num_classes: int, n: int | None = None) -> None:
    """Refuse true labels that are not n integers in 0 .. K-1."""
    if labels.ndim != 1 or labels.is_floating_point() or labels.dtype == torch.bool:
        raise LabelError(f"labels must be a vector of integers, not {labels.dtype} of shape {tuple(labels.shape)}")
    if n is not None and len(labels) != n:
        raise LabelError(f"there are {len(labels)} labels for {n} examples")
    wrong = ((labels < 0) | (labels >= num_classes)).nonzero().flatten()
    if len(wrong):
        row = int(wrong[0])
        raise LabelError(f"label {int(labels[row])} of example {row} is out of range 0 to {num_classes - 1}")


def draw_in_chunks(draw: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, num_classes: int) -> CandidateSets:
    """Draw candidate sets piece by piece; the pieces depend on K alone, so the same stream gives the same sets."""
    step = max(1, CHUNK_CELLS // num_classes)
    masks = (draw(xs, ys) for xs, ys in zip(x.split(step), y.split(step), strict=True))
    return CandidateSets.from_chunks(masks, len(y), num_classes)


def is_collection(value: Any) -> bool:
    """Return whether a value holds several classes, as a list does, and a number or a name does not."""
    return isinstance(value, Iterable) and not isinstance(value, str)


def _set_text(names: list[str], most: int = 8) -> str:
    """Return one set as people write it; a long one is cut."""
    rest = [f"… {len(names) - most} more"] if len(names) > most else []
    return f"{{{', '.join([*names[:most], *rest])}}}"


def _lists(mask: Tensor) -> Iterator[list[int]]:
    """Yield each row's classes."""
    classes = mask.nonzero()[:, 1].tolist()
    ends = mask.sum(1).cumsum(0).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        yield classes[start:end]
