"""From a path to the installed dataset that reads it: a file's ending tells the format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.components import Dataset
from wsl_toolkit.data.loading import load_data
from wsl_toolkit.errors import DataError, did_you_mean
from wsl_toolkit.parameters import construct, parameters_of
from wsl_toolkit.plugins.registry import Registry

if TYPE_CHECKING:
    from wsl_toolkit.data.dataset import Data

PATH = "path"
"""The parameter by which a dataset that reads files is told where they are."""

FOLDER = "/"
"""What a dataset that reads a folder declares among its suffixes."""


def readers(registry: Registry) -> dict[str, type[Dataset]]:
    """Return the installed dataset that reads each known ending."""
    installed: list[type[Dataset]] = [registry.get("dataset", name) for name in registry.names("dataset")]
    found: dict[str, type[Dataset]] = {}
    for cls in installed:
        if PATH in parameters_of(cls):
            found |= dict.fromkeys(cls.suffixes, cls)
    return found


def reader_of(path: Path, registry: Registry) -> type[Dataset]:
    """Return the dataset class for a path, or say which endings are known."""
    known = readers(registry)
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
    from wsl_toolkit.plugins.attribution import attributed

    cls = reader_of(path, registry)
    dataset = construct(cls, {PATH: str(path), **values})
    with attributed(registry, "dataset", cls.name):
        return load_data(dataset, data_dir)


def write(data: Data, path: Path, values: Mapping[str, Any], registry: Registry) -> None:
    """Write data in the format that the path's ending names, atomically and without loss, or refuse."""
    construct(reader_of(path, registry), {PATH: str(path), **values}).write(data, path.parent)
