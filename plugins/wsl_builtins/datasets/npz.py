"""NumPy archives: arrays by name in one .npz file, read without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_toolkit import Dataset, param
from wsl_toolkit.data.formats.paths import locate, reading
from wsl_toolkit.errors import ConfigError, DataError
from wsl_toolkit.system.files import replacing

if TYPE_CHECKING:
    from torch import Tensor

    from wsl_toolkit import Data

ARRAYS = ("x", "y", "candidates", "test_x", "test_y", "class_names", "ids", "normalise", "weights")
CHANNELS = (1, 3, 4)
MOST_CLASSES = 2**20
"""More classes than this, read off the largest label, are a mistake: an id or a date in place of a class."""


@attrs.frozen(kw_only=True)
class Npz(Dataset):
    """A .npz file: x, with y (n integers), candidates (n×K of 0 and 1), or both.

    x is n×d, or images n×H×W or n×C×H×W; y may be -1 where there are candidates and the true label is unknown.
    Optional: test_x and test_y, class_names (K texts), ids (n texts), weights (n numbers: how much an example counts),
    normalise (none, per-feature, min-max or per-channel).
    """

    name: ClassVar[str] = "npz"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    path: Path = param(help="the .npz file, from here or below the data directory")

    def load(self, data_dir: Path) -> Data:
        from wsl_toolkit.data.formats.npz_files import read_arrays

        path = locate(self.path, data_dir)
        with reading(path, "a .npz file"):
            return to_data(read_arrays(path, ARRAYS), path.stem)

    def write(self, data: Data, data_dir: Path) -> None:
        import numpy as np

        arrays = from_data(data)
        with replacing(self.path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)


def to_data(arrays: dict[str, Any], name: str) -> Data:
    """Check the arrays and turn them into data."""
    from wsl_toolkit import CandidateSets, Data

    if "x" not in arrays:
        raise DataError(f"it has no array x, only {', '.join(arrays) or 'nothing'}")
    x = _inputs(arrays["x"], "x")
    class_names = _texts(arrays, "class_names")
    candidates = None
    if "candidates" in arrays:
        cells = arrays["candidates"]
        if cells.dtype.kind not in "biuf":
            raise DataError("array candidates must hold 0 and 1")
        candidates = CandidateSets.from_mask(cells if cells.itemsize == 1 else cells.astype("float64"), class_names)
    y = _labels(arrays, "y")
    num_classes = _count_classes(candidates, class_names, y)
    complete = y is not None and (candidates is None or bool((y >= 0).all()))
    usual = "per-channel" if x.ndim > 2 else "per-feature"
    normalise: Any = str(arrays.get("normalise", usual))
    return Data(
        name=name,
        x=x,
        y=y if complete else None,
        known_y=None if complete else y,
        candidates=candidates,
        num_classes=num_classes,
        class_names=class_names,
        test_x=_inputs(arrays["test_x"], "test_x") if "test_x" in arrays else None,
        test_y=_labels(arrays, "test_y"),
        normalise=normalise,
        ids=_texts(arrays, "ids"),
        weights=_weights(arrays),
    )


def _count_classes(candidates: Any, class_names: tuple[str, ...] | None, y: Tensor | None) -> int:
    if candidates is not None:
        return int(candidates.num_classes)
    if class_names is not None:
        return len(class_names)
    largest = int(y.max()) if y is not None and len(y) else 0
    if largest >= MOST_CLASSES:
        raise DataError(f"array y names class {largest}: number the classes 0, 1, 2, … without gaps")
    return largest + 1


def _inputs(array: Any, key: str) -> Tensor:
    import torch

    if array.dtype.kind not in "biuf":
        raise DataError(f"array {key} holds {array.dtype}: it must hold numbers")
    if array.ndim not in (2, 3, 4):
        raise DataError(f"array {key} has {array.ndim} dimensions; it must be n×d, n×H×W or n×C×H×W")
    if array.ndim == 4 and array.shape[1] not in CHANNELS and array.shape[3] in CHANNELS:
        raise DataError(f"array {key} is {array.shape}, with the channels last: transpose it to n×C×H×W")
    # Numbers of a table keep all their digits until they are scaled; images need no more than float32.
    kind = "uint8" if array.dtype == "uint8" else "float64" if array.ndim == 2 else "float32"
    if array.dtype.kind == "f" and array.dtype.itemsize <= 4:
        kind = "float32"
    tensor = torch.from_numpy(array.astype(kind, order="C"))
    return tensor.unsqueeze(1) if array.ndim == 3 else tensor


def _labels(arrays: dict[str, Any], key: str) -> Tensor | None:
    import torch

    if key not in arrays:
        return None
    array = arrays[key]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"array {key} must be a vector of whole numbers, not {array.dtype} of shape {array.shape}")
    return torch.from_numpy(array.astype("int64"))


def _weights(arrays: dict[str, Any]) -> Tensor | None:
    import torch

    if "weights" not in arrays:
        return None
    array = arrays["weights"]
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise DataError(f"array weights must be a vector of numbers, not {array.dtype} of shape {array.shape}")
    return torch.from_numpy(array.astype("float64"))


def _texts(arrays: dict[str, Any], key: str) -> tuple[str, ...] | None:
    if key not in arrays:
        return None
    if arrays[key].ndim != 1:
        raise DataError(f"array {key} must be a vector of texts, not of shape {arrays[key].shape}")
    return tuple(str(text) for text in arrays[key])


def from_data(data: Data) -> dict[str, Any]:
    """Return the arrays of an archive, or say what of the data it could not hold."""
    import numpy as np

    if data.annotators:
        raise ConfigError(f"{data.name}: an .npz file cannot hold what each annotator said: leave them out first")
    if not isinstance(data.normalise, str):
        raise ConfigError(f"{data.name}: an .npz file cannot hold a table's columns: use csv or parquet")
    labels = data.y if data.y is not None else data.known_y
    arrays = {
        "x": data.x,
        "y": labels,
        "candidates": None if data.candidates is None else data.candidates.mask(),
        "test_x": data.test_x,
        "test_y": data.test_y,
        "weights": data.weights,
    }
    found: dict[str, Any] = {name: tensor.numpy() for name, tensor in arrays.items() if tensor is not None}
    for key, texts in (("class_names", data.class_names), ("ids", data.ids)):
        if texts is not None:
            found[key] = np.array(texts, dtype=np.str_)
    return {**found, "normalise": np.array(data.normalise)}
