"""Data on its way to another machine: plain arrays, which a cluster's shared memory holds once for all its readers."""

from __future__ import annotations

import warnings
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels import storage
from wsl_toolkit.labels.candidate_sets import CandidateSets, tensors_of


def pack(data: Data) -> dict[str, Any]:
    """Return the data as arrays and plain values."""
    values = {field.name: getattr(data, field.name) for field in attrs.fields(Data)}
    return {name: _packed(value) for name, value in values.items()}


def unpack(packed: dict[str, Any]) -> Data:
    """Return the data again; its tensors are views of the arrays, which nobody may write to."""
    return Data(**{name: _unpacked(value) for name, value in packed.items()})


def packed_bytes(packed: dict[str, Any]) -> int:
    """Return how much memory packed data takes."""
    arrays = [value for item in packed.values() for value in (item.values() if isinstance(item, dict) else [item])]
    return sum(value.nbytes for value in arrays if hasattr(value, "nbytes"))


def _packed(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, CandidateSets):
        arrays = {f"tensor {name}": tensor.numpy() for name, tensor in tensors_of(value).items()}
        return {"sets": value.storage, "classes": value.num_classes, "names": value.class_names, **arrays}
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict) and "sets" in value:
        tensors = {name.removeprefix("tensor "): _tensor(v) for name, v in value.items() if name.startswith("tensor ")}
        store = storage.from_tensors(value["sets"], tensors, value["classes"])
        return CandidateSets(store, value["classes"], value["names"])
    return _tensor(value) if hasattr(value, "__array_interface__") else value


def _tensor(array: Any) -> Tensor:
    with warnings.catch_warnings():
        # Shared memory is read-only, which torch cannot express; nothing here writes to data.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
