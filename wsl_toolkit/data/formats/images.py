"""Folders of images: one folder for each class, or a table of candidate sets that names the images by file."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.formats import decoded_images, table_files, table_layout
from wsl_toolkit.data.table_columns import row_number
from wsl_toolkit.errors import DataError, did_you_mean, one_line
from wsl_toolkit.system.memory import MEMORY_SHARE, free_memory

FILE = "file"
"""The column that names the image of a row, below the folder."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
LABELS = "labels.csv"
SAMPLE = 4096
"""Of a large image, so many bytes at its beginning, middle and end tell whether it is still the same."""

BLOCK = 4096
"""So many images are looked at or decoded before the next are begun."""

T = TypeVar("T")


def read_folder(folder: Path, labels: Path, layout: table_layout.Layout, file_column: str, decoder: Decoder) -> Data:
    """Read the images that a table names, with the table's candidate sets; other columns are not inputs."""
    file = table_files.named(labels, lambda: table_files.read_table(labels, layout))
    table = file.table
    if file_column not in table.column_names:
        raise DataError(f"{labels.name}: there is no column {file_column!r} that names the images")
    files = [str(value) for value in table.column(file_column).to_pylist()]
    labelled = table_files.named(labels, lambda: table_files.labels_of(file))
    for row, name in enumerate(files):
        place = f"{labels.name}: {file.where(row)}, column {file_column!r}"
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise DataError(f"{place}: {name!r} leads out of the folder; name images below it")
        if not os.path.isfile(folder / name):  # unlike Path's, it takes names that no file can have
            raise DataError(f"{place}: there is no image {name[:100]!r}")
    x = decoder.read(folder, [folder / name for name in files])
    labelled["ids"] = labelled["ids"] or _ids(files)
    people = table_files.annotators_of(file, labelled["class_names"])
    return Data(name=folder.name, x=x, normalise="per-channel", annotators=people, **labelled)


def _ids(files: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    for row, name in enumerate(files):
        if name in seen:
            raise DataError(f"{row_number(seen[name])} and {row_number(row)} name the same image {name!r}")
        seen[name] = row
    return tuple(files)


def read_class_folders(folder: Path, decoder: Decoder) -> Data:
    """Read images whose class is the folder they lie in; a train and a test folder are official parts."""
    train, test = folder, None
    if (folder / "train").is_dir() and _folders(folder / "train"):  # and not a class that is called train
        train, test = folder / "train", folder / "test" if (folder / "test").is_dir() else None
    classes = tuple(path.name for path in _folders(train))
    if len(classes) < 2:
        raise DataError(
            f"{folder} has {len(classes)} class folders: at least 2 are needed, or a {LABELS} that names the images"
        )
    files, y = _files_by_class(train, classes)
    parts: dict[str, Any] = {}
    if test is not None:
        unknown = [path.name for path in _folders(test) if path.name not in classes]
        if unknown:
            raise DataError(
                f"{test / unknown[0]}: there is no such class in {train}.{did_you_mean(unknown[0], classes)}"
            )
        test_files, parts["test_y"] = _files_by_class(test, classes)
        parts["test_x"] = decoder.read(test, test_files)
    return Data(
        name=folder.name,
        x=decoder.read(train, files),
        y=y,
        num_classes=len(classes),
        class_names=classes,
        ids=tuple(path.relative_to(train).as_posix() for path in files),
        normalise="per-channel",
        **parts,
    )


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files_by_class(folder: Path, classes: tuple[str, ...]) -> tuple[list[Path], Tensor]:
    """Return the images of all classes, class by class, and their labels."""
    files: list[Path] = []
    counts = []
    for name in classes:
        found = image_files(folder / name) if (folder / name).is_dir() else []
        if not found:
            raise DataError(f"class folder {folder / name} holds no images ({', '.join(SUFFIXES)})")
        files += found
        counts.append(len(found))
    return files, torch.repeat_interleave(torch.arange(len(classes)), torch.tensor(counts))


def image_files(folder: Path) -> list[Path]:
    """Return the images below a folder, in order of their names; hidden files are left out."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and not path.name.startswith("."))
    return sorted(path for path in found if path.is_file())


def read_images(paths: Sequence[Path], size: int, channels: int = 3) -> Tensor:
    """Return images as bytes [n, C, size, size]; one that cannot be read is named."""
    out = torch.empty(len(paths), channels, size, size, dtype=torch.uint8)

    def decode(place: int) -> None:
        out[place] = torch.from_numpy(_pixels(paths[place], size, channels))

    # Pillow decodes without holding the interpreter's lock.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for places in _blocks(range(len(paths))):
            for _ in pool.map(decode, places):
                pass
    return out


def _blocks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut a sequence into blocks: a pool of threads keeps a record of everything that it was given."""
    return (items[start : start + BLOCK] for start in range(0, len(items), BLOCK))


def _pixels(path: Path, size: int, channels: int) -> np.ndarray:
    """Decode one image, turned as its camera meant it, to [C, size, size]; it is squeezed, not cropped."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            if opened.mode.startswith(("I", "F")):
                raise ValueError(f"it has {opened.mode} pixels; only 8-bit images are read")
            image: Any = ImageOps.exif_transpose(opened).convert("RGB" if channels == 3 else "L")
            if image.size != (size, size):
                image = image.resize((size, size), Image.Resampling.BICUBIC)
            return np.array(image).reshape(size, size, channels).transpose(2, 0, 1)
    # Decoders meet damaged files with every kind of exception.
    except Exception as error:
        raise DataError(f"{path} is not a readable image: {one_line(error)}") from None


@attrs.frozen(kw_only=True)
class Decoder:
    """Decodes images once: what it read before and has not changed since comes from a cache."""

    size: int
    channels: int = 3
    cache: Path | None = None
    """Where decoded images are kept; None: WSL_CACHE_DIR, or the user's cache directory."""
    every_byte: bool = False
    """Whether files are known again by all of their bytes, not by a sample of them."""

    def read(self, folder: Path, paths: list[Path]) -> Tensor:
        """Return the images, from the cache if all of their files are still the same."""
        path = self.cache_file(folder, paths)
        shape = (len(paths), self.channels, self.size, self.size)
        if math.prod(shape) > free_memory() // MEMORY_SHARE:
            return self._mapped(path, paths, shape)
        images = decoded_images.load(path, shape)
        if images is None:
            images = read_images(paths, self.size, self.channels)
            decoded_images.save(path, images)
        return images

    def _mapped(self, path: Path, paths: list[Path], shape: tuple[int, ...]) -> Tensor:
        """Return images that memory is too small for as a file that is mapped; never more than a block is in memory."""
        images = decoded_images.mapped(path, shape)
        if images is None:
            blocks = (read_images(part, self.size, self.channels) for part in _blocks(paths))
            decoded_images.save_in_blocks(path, shape, blocks)
            images = decoded_images.mapped(path, shape)
        if images is None:
            raise DataError(f"{path} was damaged while it was written: try again, or choose another WSL_CACHE_DIR")
        return images

    def cache_file(self, folder: Path, paths: list[Path]) -> Path:
        """Return where these images are kept: a name made of every file's name, size, time of change and content."""
        digest = hashlib.sha256(f"wsl images 2 {self.size} {self.channels} {folder.resolve()}".encode())
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for part in _blocks(paths):
                for path, state in zip(part, pool.map(self._state, part), strict=True):
                    digest.update(f"\n{path.relative_to(folder)} {state}".encode())
        return (self.cache or _default_cache()) / f"images-{digest.hexdigest()[:32]}.safetensors"

    def _state(self, path: Path) -> str:
        """Return what tells a file from an earlier one of its name: size, time of change, and content or a sample."""
        state = path.stat()
        size = state.st_size
        with path.open("rb") as file:
            if self.every_byte or size <= 3 * SAMPLE:
                content = hashlib.file_digest(file, "sha256")
            else:
                content = hashlib.sha256()
                for place in (0, (size - SAMPLE) // 2, size - SAMPLE):
                    file.seek(place)
                    content.update(file.read(SAMPLE))
        return f"{size} {state.st_mtime_ns} {content.hexdigest()}"


def _default_cache() -> Path:
    given = os.environ.get("WSL_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wsl-toolkit"
