"""Finding a user's file, and turning whatever a parser says about a broken one into one clear line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wsl_toolkit.errors import DataError, WslError, one_line


def locate(path: Path, data_dir: Path, *, folder: bool = False) -> Path:
    """Return the file (or folder) as named from here, or else below the data directory."""
    what = "folder" if folder else "file"
    for found in (path, data_dir / path):
        if found.is_dir() if folder else found.is_file():
            return found
        if found.exists():
            raise DataError(f"{found} is not a {what}")
    also = "" if path.is_absolute() else f", neither here nor below the data directory {data_dir}"
    raise DataError(f"there is no {what} {path}{also}: check --dataset-path and --data-dir")


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Report any failure of a parser as one line that names the file; our own errors get the file's name."""
    try:
        yield
    except WslError as error:
        message = str(error).removeprefix(f"{path.stem}: ")  # Data is named after the file
        raise type(error)(f"{path.name}: {message}") from None
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    # Parsers meet damaged files with every kind of exception: struct, zlib, index, memory, unicode.
    except Exception as error:
        raise DataError(f"{path} cannot be read as {what}: {one_line(error)} (is it complete?)") from None
