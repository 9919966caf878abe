"""Reading candidate sets as people write them: 0/1 matrices, lists of classes, class names; mistakes are named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.errors import LabelError, did_you_mean
from wsl_toolkit.labels import storage


def read_mask(matrix: Any) -> Tensor:
    """Return a boolean or 0/1 matrix (tensor, array or nested list) as a boolean tensor of its own."""
    try:
        tensor = matrix if isinstance(matrix, Tensor) else torch.as_tensor(np.asarray(matrix))
    except (TypeError, ValueError):
        raise LabelError("a candidate matrix must hold numbers, with as many columns in every row") from None
    if tensor.ndim != 2:
        raise LabelError(f"a candidate matrix has 2 dimensions (examples, classes), not {tensor.ndim}")
    if tensor.shape[1] < 2:
        raise LabelError(f"a candidate matrix needs at least 2 classes (columns), not {tensor.shape[1]}")
    if tensor.dtype == torch.bool:
        return tensor.clone()  # the caller's may change; ours may not
    wrong = ((tensor != 0) & (tensor != 1)).nonzero()
    if len(wrong):
        row, column = (int(i) for i in wrong[0])
        raise _not_a_bit(tensor[row, column].item(), row, column)
    return tensor.bool()


def read_sparse_matrix(matrix: Any) -> storage.SparseStore:
    """Return a scipy sparse 0/1 matrix [n, K] as sets."""
    rows = matrix.tocsr(copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    wrong = np.flatnonzero(rows.data != 1)
    if len(wrong):
        row = int(np.searchsorted(rows.indptr, wrong[0], side="right")) - 1
        raise _not_a_bit(rows.data[wrong[0]], row, int(rows.indices[wrong[0]]))
    num_classes = rows.shape[1]
    if num_classes < 2:
        raise LabelError(f"a candidate matrix needs at least 2 classes (columns), not {num_classes}")
    classes = torch.from_numpy(rows.indices.astype(np.int64)).to(storage.index_dtype(num_classes))
    return storage.SparseStore(torch.from_numpy(rows.indptr.astype(np.int64)), classes, num_classes)


def read_sets(
    sets: Sequence[Iterable[Any]], num_classes: int | None, class_names: Sequence[str] | None
) -> storage.SparseStore:
    """Return lists of classes (integers or names) as sets; a class named twice counts once."""
    flat, counts = _flatten(sets, class_names)
    if num_classes is None:
        num_classes = len(class_names) if class_names is not None else int(flat.max(initial=-1)) + 1
    wrong = np.flatnonzero((flat < 0) | (flat >= num_classes))
    if len(wrong):
        row = int(np.searchsorted(np.cumsum(counts), wrong[0], side="right"))
        raise LabelError(f"example {row} names class {flat[wrong[0]]}, out of range 0 to {num_classes - 1}")
    rows = np.repeat(np.arange(len(counts)), counts)
    pairs = np.unique(rows * num_classes + flat)
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(np.bincount(pairs // max(num_classes, 1), minlength=len(counts)), out=offsets[1:])
    classes = torch.from_numpy(pairs % max(num_classes, 1)).to(storage.index_dtype(num_classes))
    return storage.SparseStore(torch.from_numpy(offsets), classes, num_classes)


def check_names(names: Sequence[str] | None, num_classes: int) -> tuple[str, ...] | None:
    """Return one distinct name for each class, or None."""
    if names is None:
        return None
    names = tuple(str(name) for name in names)
    if len(names) != num_classes:
        raise LabelError(f"{len(names)} class names were given for {num_classes} classes")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LabelError(f"class name {twice!r} is used twice")
    return names


def _flatten(sets: Iterable[Iterable[Any]], class_names: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return all members as integers, one after another, and how many each set has."""
    code = {name: j for j, name in enumerate(class_names)} if class_names is not None else {}
    flat: list[int] = []
    counts: list[int] = []
    for row, members in enumerate(sets):
        if isinstance(members, str) or not isinstance(members, Iterable):
            raise LabelError(f"example {row} is {members!r}, not a collection of classes; write [{members!r}]")
        before = len(flat)
        flat.extend(_as_class(member, row, code) for member in members)
        counts.append(len(flat) - before)
    return np.asarray(flat, dtype=np.int64), np.asarray(counts, dtype=np.int64)


def _as_class(member: Any, row: int, code: dict[str, int]) -> int:
    if isinstance(member, str):
        if member in code:
            return code[member]
        known = (
            f"the {len(code)} class names.{did_you_mean(member, code)}" if code else "class names, as none were given"
        )
        raise LabelError(f"example {row} names class {member!r}, which is not among {known}")
    try:
        value = int(member)
    except (TypeError, ValueError, OverflowError):
        raise LabelError(f"example {row} has {member!r} among its candidates, which is no class") from None
    if value != member:
        raise LabelError(f"example {row} has {member!r} among its candidates; classes are whole numbers")
    return value


def _not_a_bit(value: Any, row: int, column: int) -> LabelError:
    return LabelError(f"candidate matrix holds {value} at row {row}, class {column}: only 0 and 1 mean anything there")
