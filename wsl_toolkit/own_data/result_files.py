"""What the commands write for people and programs: checked before any work is done, written whole or not at all."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.system.files import replacing

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".parquet", ".json")
LONGEST_NAME = 255
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a cell begins with that a spreadsheet runs."""
NUMBER = r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?"


def check_ending(path: Path) -> None:
    """Refuse, before any work, a file whose ending names no format that results are written in."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"results are written as {', '.join(ENDINGS)}, not as {path.name!r}")


def check_file(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse, before any work, to write a file over an input, over another file without `force`, or where none can be.

    Raises:
        ConfigError: with what is in the way and what to do about it.
    """
    check_place(path, inputs)
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} is not a file: choose another name to write to")
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already: --force replaces it, or choose another name")


def check_place(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse a place to write to that touches an input, or where nothing can be written."""
    try:
        for given in inputs:
            if given.exists() and touches(path, given):
                raise ConfigError(f"{path} would write over the input {given}: choose another name to write to")
        _try_to_write(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be written: {one_line(error)}") from None


def touches(path: Path, given: Path) -> bool:
    """Return whether one of two paths is the other or lies inside it, whatever names and links lead there."""
    if path.exists() and path.samefile(given):
        return True
    place, source = path.resolve(), given.resolve()
    return place.is_relative_to(source) or source.is_relative_to(place)


def _try_to_write(path: Path) -> None:
    """Make and remove a nameless file in the nearest folder that there is; raise the system's error if it cannot be."""
    folder = path.resolve().parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    longest = os.pathconf(folder, "PC_NAME_MAX") if hasattr(os, "pathconf") else LONGEST_NAME
    for name in path.parts:
        if len(os.fsencode(name)) > longest:
            raise ValueError(f"a name of more than {longest} bytes, {name[:20]!r}…")
    with tempfile.TemporaryFile(dir=folder):
        pass


def write_frame(frame: pd.DataFrame, path: Path, *, raw: bool = False) -> None:
    """Write a data frame in the format that the ending names; `raw` as in `to_csv`."""
    check_ending(path)
    try:
        with replacing(path) as temporary:
            if path.suffix.lower() == ".csv":
                to_csv(frame, temporary, raw=raw)
            elif path.suffix.lower() == ".parquet":
                frame.to_parquet(temporary, index=False)
            else:
                frame.to_json(temporary, orient="records", force_ascii=False, indent=2)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {one_line(error)}") from None


def to_csv(frame: pd.DataFrame, place: Path | IO[str], *, raw: bool = False) -> None:
    """Write a data frame as CSV; unless `raw`, texts that a spreadsheet would run as formulas get a ' in front."""
    if not raw:
        texts = frame.select_dtypes(exclude=["number", "bool"]).columns
        frame = frame.assign(**{name: frame[name].map(guarded) for name in texts}).rename(columns=guarded)
    frame.to_csv(place, index=False, lineterminator="\n")


def guarded(value: Any) -> Any:
    """Return a cell so that a spreadsheet shows it and does not run it; a number in text is no formula."""
    if isinstance(value, str) and value.startswith(FORMULAS) and not re.fullmatch(NUMBER, value):
        return f"'{value}"
    return value
