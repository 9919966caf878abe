"""Candidate sets as arrays and lists hold them: 0/1 matrices, lists of sets, texts such as "cat|dog", labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

SEPARATOR = "|"


def candidate_matrix(S: Any, classes: Sequence[Any] | np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return candidate sets in any accepted form as a boolean matrix [n, K], with the classes of its columns."""
    given = None if classes is None else np.asarray(classes)
    if S is None:
        raise ValueError("This PartialLabelClassifier estimator requires y to be passed, but the target y is None")
    if hasattr(S, "toarray"):
        S = S.toarray()
    if given is None and hasattr(S, "columns") and S.shape[1] > 1:  # a DataFrame of zeros and ones names its classes
        given = np.asarray(S.columns)
    if hasattr(S, "isna") and bool((missing := np.asarray(S.isna())).any()):
        row = int(missing.reshape(len(missing), -1).any(axis=1).argmax())
        raise ValueError(
            f"candidate set of example {row} is missing: drop such rows, or give all classes as candidates"
        )
    if _is_sets(S):
        return _from_sets([_members(item) for item in S], given)
    array = np.asarray(S)
    if array.ndim == 2 and array.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Its values are taken as ordinary labels.",
            DataConversionWarning,
            stacklevel=3,
        )
        array = array.ravel()
    if array.ndim == 2:
        return _from_matrix(array, given)
    if array.ndim != 1:
        raise ValueError(f"y must be a 0/1 matrix, sets or labels, not an array of shape {array.shape}")
    from sklearn.utils.multiclass import check_classification_targets

    check_classification_targets(array)
    if array.dtype.kind in "OU" and any(isinstance(item, str) and SEPARATOR in item for item in array):
        return _from_sets([item.split(SEPARATOR) for item in array], given)
    return _from_labels(array, given)


def _is_sets(S: Any) -> bool:
    """Tell a list of collections from a matrix: sets, rows of different lengths, or rows of more than 0 and 1."""
    if hasattr(S, "iloc"):
        S = S.to_numpy()
    if not isinstance(S, list | tuple | np.ndarray) or (
        isinstance(S, np.ndarray) and (S.dtype != object or S.ndim != 1)
    ):
        return False
    rows = list(S)
    if not rows or not all(isinstance(row, set | frozenset | list | tuple) for row in rows):
        return False
    if any(isinstance(row, set | frozenset) for row in rows) or len({len(row) for row in rows}) > 1:
        return True
    return any(item not in (0, 1) for row in rows for item in row)


def _members(item: Any) -> list[Any]:
    return sorted(item, key=str) if isinstance(item, set | frozenset) else list(item)


def _from_sets(sets: list[list[Any]], given: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    sets = [[m.strip() if isinstance(m, str) else m for m in members] for members in sets]
    if given is None:
        given = np.unique(np.asarray([member for members in sets for member in members]))
    place = {value: j for j, value in enumerate(given.tolist())}
    mask = np.zeros((len(sets), len(given)), dtype=bool)
    for row, members in enumerate(sets):
        for member in members:
            key = member.item() if isinstance(member, np.generic) else member
            if key not in place:
                raise ValueError(f"candidate set of example {row} names {key!r}, which is not among the classes")
            mask[row, place[key]] = True
    return _without_empty(mask), given


def _from_matrix(array: np.ndarray, given: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    wrong = np.argwhere((array != 0) & (array != 1))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"candidate matrix holds {array[row, column]} at row {row}, column {column}: only 0 and 1 may be"
        )
    classes = np.arange(array.shape[1]) if given is None else given
    if len(classes) != array.shape[1]:
        raise ValueError(f"candidate matrix has {array.shape[1]} columns for {len(classes)} classes")
    return _without_empty(array.astype(bool)), classes


def _from_labels(array: np.ndarray, given: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    classes = np.unique(array) if given is None else given
    order = np.argsort(classes, kind="stable")
    place = np.clip(np.searchsorted(classes, array, sorter=order), 0, len(classes) - 1)
    place = order[place]
    unknown = np.flatnonzero(classes[place] != array)
    if len(unknown):
        raise ValueError(f"label {array[unknown[0]].item()!r} of example {unknown[0]} is not among the classes")
    mask = np.zeros((len(array), len(classes)), dtype=bool)
    mask[np.arange(len(array)), place] = True
    return mask, classes


def _without_empty(mask: np.ndarray) -> np.ndarray:
    empty = np.flatnonzero(~mask.any(axis=1))
    if len(empty):
        raise ValueError(f"candidate set of example {empty[0]} is empty ({len(empty)} of {len(mask)} are)")
    return mask
