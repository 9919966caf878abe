"""Data from Python: loaded by name or file, made from arrays, with candidate sets drawn for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import attrs
import numpy as np
import torch

from wsl_toolkit.api.components import described, make_component, registry_with
from wsl_toolkit.components import Dataset, Generator
from wsl_toolkit.data import loading
from wsl_toolkit.data.dataset import Data, Normalisation, transform_inputs
from wsl_toolkit.data.formats import sources
from wsl_toolkit.data.given import Given
from wsl_toolkit.data.weights import as_weights
from wsl_toolkit.errors import ConfigError, DataError
from wsl_toolkit.labels.array_sets import candidate_matrix
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.random_streams import stream


@attrs.frozen(kw_only=True)
class Origin:
    """Where data came from: the dataset that read it, and where that looked for files."""

    dataset: tuple[str, dict[str, Any]]
    data_dir: Path


_ORIGINS: WeakKeyDictionary[Data, Origin] = WeakKeyDictionary()


def default_data_dir(given: str | Path | None) -> Path:
    """Return where datasets are kept: as given, else WSL_DATA_DIR, else 'data', as for the command line."""
    return Path(given or os.environ.get("WSL_DATA_DIR") or "data").expanduser()


def load_data(dataset: str | Path | Dataset, *, data_dir: str | Path | None = None, **parameters: Any) -> Data:
    """Load data by the name of an installed dataset (`wsl list dataset`), or a file or folder by its path.

    `parameters` are the dataset's own, such as `candidates_column` of a CSV file. Files of named datasets are looked
    for below `data_dir` (default: WSL_DATA_DIR, else `data`). The command line can resume a run on what this returns.
    """
    registry = load_plugins().registry
    folder = default_data_dir(data_dir)
    if isinstance(dataset, str) and dataset in registry.names("dataset"):
        reader = make_component("dataset", dataset, parameters)
    elif isinstance(dataset, Path) or (isinstance(dataset, str) and _is_path(dataset)):
        path = Path(dataset)
        reader = make_component("dataset", sources.reader_of(path, registry), {sources.PATH: str(path), **parameters})
    else:
        reader = make_component("dataset", dataset, parameters)
    with attributed(registry_with(reader), "dataset", reader.name):
        data = loading.load_data(reader, folder)
    if type(reader) in {entry.cls for entry in registry.entries()}:
        _ORIGINS[data] = Origin(dataset=described(reader), data_dir=folder)
    return data


def _is_path(text: str) -> bool:
    """Tell a path from a name that is misspelt, which deserves the names that are near."""
    return Path(text).exists() or bool(Path(text).suffix) or os.sep in text


def origin_of(data: Data) -> Origin | None:
    """Return where data came from, if it was loaded by name."""
    return _ORIGINS.get(data)


def make_data(
    x: Any,
    sets: Any = None,
    *,
    y: Any = None,
    test_x: Any = None,
    test_y: Any = None,
    classes: Sequence[Any] | None = None,
    name: str = "data",
    normalise: Normalisation = "per-feature",
    weights: Any = None,
) -> Data:
    """Make data of arrays: inputs [n, …] with candidate sets, true labels (to evaluate, or to draw sets for), or both.

    `sets` are CandidateSets, a 0/1 matrix [n, K], a list of sets of classes, or texts such as "cat|dog"; labels are
    numbers or names. `classes` gives the order of the classes, or the names of a matrix's columns; `weights` [n] say
    how much each example counts in training.
    """
    known = None if classes is None else list(classes)
    if sets is None and y is None:
        raise DataError(f"{name}: give candidate sets, true labels (y=…), or both")
    candidates: CandidateSets | None = None
    if isinstance(sets, CandidateSets):
        candidates = sets
        known = known or list(sets.class_names or range(sets.num_classes))
    elif sets is not None:
        mask, found = _matrix(sets, known, name)
        candidates = CandidateSets.from_mask(mask)
        known = list(found)
    labels, known = _labels(y, known, name)
    tested, known = _labels(test_y, known, name)
    assert known is not None
    names = None if all(isinstance(each, int | np.integer) for each in known) else tuple(map(str, known))
    inputs = _inputs(x, name)
    return Data(
        name=name,
        x=inputs,
        y=labels,
        candidates=candidates.named(names) if candidates is not None else None,
        num_classes=len(known),
        class_names=names,
        test_x=None if test_x is None else _inputs(test_x, name),
        test_y=tested,
        normalise=normalise,
        weights=None if weights is None else as_weights(weights, len(inputs), name),
    )


def _inputs(x: Any, name: str) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x
    array = np.ascontiguousarray(x.to_numpy() if hasattr(x, "to_numpy") else x)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name}: inputs must be numbers, not {array.dtype}: encode text columns first, or use a file")
    if array.dtype.kind in "ib" or array.dtype.itemsize < 4:
        array = array if array.dtype == np.uint8 else array.astype(np.float32)
    return torch.from_numpy(np.array(array))


def _matrix(sets: Any, classes: list[Any] | None, name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        return candidate_matrix(sets, classes)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from None


def _labels(y: Any, classes: list[Any] | None, name: str) -> tuple[torch.Tensor | None, list[Any] | None]:
    """Return labels as places among the classes, and the classes."""
    if y is None:
        return None, classes
    numbers = np.asarray(y)
    if classes is not None and numbers.dtype.kind in "iu" and all(isinstance(each, str) for each in classes):
        labels = torch.from_numpy(numbers.astype(np.int64))  # places among classes that have names; Data checks them
        return labels, classes
    mask, found = _matrix(y.tolist() if isinstance(y, torch.Tensor) else y, classes, name)
    if (mask.sum(1) != 1).any():
        raise DataError(
            f"{name}: example {int((mask.sum(1) != 1).argmax())} has several true labels: give them as sets"
        )
    return torch.from_numpy(mask.argmax(1)), list(found)


def as_data(given: Any, data_dir: str | Path | None = None) -> Data:
    """Return data as it is given to `train`: data, a name, a path, a dataset, or a pair of arrays (inputs, labels)."""
    if isinstance(given, Data):
        return given
    if isinstance(given, str | Path | Dataset):
        return load_data(given, data_dir=data_dir)
    if isinstance(given, tuple) and len(given) == 2:
        x, labels = given
        if not isinstance(labels, CandidateSets) and np.ndim(labels) == 1 and not _holds_sets(labels):
            return make_data(x, y=labels)
        return make_data(x, labels)
    raise ConfigError(
        f"data is a Data, a dataset's name, a path, or a pair (inputs, labels), not {type(given).__name__}"
    )


def _holds_sets(labels: Any) -> bool:
    first = next(iter(labels), None)
    texts = isinstance(first, str) and any("|" in str(each) for each in labels)
    return texts or isinstance(first, set | frozenset | list | tuple)


def dataset_of(data: Data) -> tuple[str, dict[str, Any]]:
    """Return the dataset that a configuration names for data: its own, or that it was given from Python."""
    origin = origin_of(data)
    return origin.dataset if origin is not None else described(Given(title=data.name, digest=data.digest()))


def draw(
    generator: str | Generator, data: Data | str | tuple[Any, Any], *, seed: int = 0, **parameters: Any
) -> CandidateSets:
    """Draw candidate sets for all examples of labelled data; `parameters` are the named generator's own.

    A run draws for its own training part instead, by its own seed: give it the generator, not these sets, unless you
    want these (`data.with_candidates(sets)`).
    """
    known = as_data(data)
    if known.y is None:
        raise DataError(f"{known.name} has no true labels to draw candidate sets for")
    made: Generator = make_component("generator", generator, parameters)
    every = torch.arange(len(known.x))
    inputs = transform_inputs(known.fit_inputs(every), known.x)
    return made.sample(inputs, known.y, known.num_classes, stream(seed, "labels")).named(known.class_names)
