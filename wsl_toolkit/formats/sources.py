"""From a path to the installed dataset that reads it: a file's ending tells the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.components import Dataset
from wsl_toolkit.errors import DataError, did_you_mean
from wsl_toolkit.parameters import parameters_of
from wsl_toolkit.registry import Registry

if TYPE_CHECKING:
    from wsl_toolkit.data import Data

PATH = "path"
"""The parameter by which a dataset that reads files is told where they are."""

FOLDER = "/"
"""What a dataset that reads a folder declares among its suffixes."""


def readers(registry: Registry) -> Iterator[tuple[str, type[Dataset]]]:
    """Yield (ending, dataset class) for every installed dataset that reads a user's files."""
    for name in registry.names("dataset"):
        cls: type[Dataset] = registry.get("dataset", name)
        if PATH in parameters_of(cls):
            yield from ((suffix, cls) for suffix in cls.suffixes)


def reader_of(path: Path, registry: Registry) -> type[Dataset]:
    """Return the dataset class for a path, or say which endings are known."""
    known = dict(readers(registry))
    ending = FOLDER if path.is_dir() else path.suffix.lower()
    if ending in known:
        return known[ending]
    endings = sorted(known)
    if ending == FOLDER:
        raise DataError(f"{path} is a folder, and no installed dataset reads one (known endings: {', '.join(endings)})")
    hint = did_you_mean(ending, endings) if ending else ""
    raise DataError(f"no installed dataset reads {path.name!r}.{hint} Known endings: {', '.join(endings)}")


def load(path: Path, values: Mapping[str, Any], registry: Registry, data_dir: Path) -> Data:
    """Read a user's file with the dataset that its ending names."""
    from wsl_toolkit.blame import blame

    cls = reader_of(path, registry)
    dataset: Dataset = registry.create("dataset", cls.name, {PATH: str(path), **values})
    with blame(registry, "dataset", cls.name):
        return dataset.load(data_dir)


def write(data: Data, path: Path, values: Mapping[str, Any], registry: Registry) -> None:
    """Write data in the format that the path's ending names, atomically and without loss, or refuse."""
    cls = reader_of(path, registry)
    dataset: Dataset = registry.create("dataset", cls.name, {PATH: str(path), **values})
    dataset.write(data, path.parent)
