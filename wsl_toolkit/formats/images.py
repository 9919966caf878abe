"""A folder of images and a table of candidate sets for them, named by file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.data import Data
from wsl_toolkit.errors import DataError, one_line
from wsl_toolkit.formats import table_files
from wsl_toolkit.tables import row_number

FILE = "file"
"""The column that names the image of a row, below the folder."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
LABELS = "labels.csv"


def read_folder(folder: Path, labels: Path, layout: table_files.Layout, file_column: str, size: int) -> Data:
    """Read the images that a table names, with the table's candidate sets; other columns are not inputs."""
    table = table_files.named(labels, lambda: table_files.read_table(labels, layout))
    if file_column not in table.column_names:
        raise DataError(f"{labels.name}: there is no column {file_column!r} that names the images")
    # The file names stand in for features, so that the same code reads sets, labels and ids.
    done = layout.completed([name for name in table.column_names if name != file_column])
    rest = done.features(table.column_names)
    done = attrs.evolve(done, ignore=(*done.ignore, *(name for name in rest if name != file_column)))
    files = [str(value) for value in table.column(file_column).to_pylist()]
    labelled = table_files.named(labels, lambda: table_files.labels_of(table, done))
    for row, name in enumerate(files):
        if not (folder / name).is_file():
            raise DataError(f"{labels.name}: {row_number(row)}, column {file_column!r}: there is no image {name!r}")
    x = read_images([folder / name for name in files], size)
    return Data(name=folder.name, x=x, normalise="per-channel", **{**labelled, "ids": labelled["ids"] or _ids(files)})


def _ids(files: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    for row, name in enumerate(files):
        if name in seen:
            raise DataError(f"{row_number(seen[name])} and {row_number(row)} name the same image {name!r}")
        seen[name] = row
    return tuple(files)


def image_files(folder: Path) -> list[Path]:
    """Return the images below a folder, in order of their names."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def read_images(paths: list[Path], size: int, channels: int = 3) -> Tensor:
    """Return images as bytes [n, C, size, size]; one that cannot be read is named."""
    from PIL import Image, UnidentifiedImageError

    out = torch.empty(len(paths), channels, size, size, dtype=torch.uint8)
    for place, path in enumerate(paths):
        try:
            with Image.open(path) as image:
                rgb: Any = image.convert("RGB" if channels == 3 else "L").resize((size, size))
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise DataError(f"{path} is not a readable image: {one_line(error)}") from None
        pixels = np.asarray(rgb)
        out[place] = torch.from_numpy(pixels.copy()).reshape(size, size, channels).permute(2, 0, 1)
    return out
