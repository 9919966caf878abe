"""Where a command is about to write: checked before any work is done, so that nothing is lost and no work in vain."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.system.figure_style import check_format

LONGEST_NAME = 255


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


def check_folder(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse, before any work, to write files into a folder that holds some already without `force`."""
    check_place(path, inputs)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is not a folder: choose another name to write to")
    if path.exists() and not force and any(path.iterdir()):
        raise ConfigError(f"{path} holds files already: --force replaces those of the same names, or choose another")


def check_figure(path: Path, *, force: bool) -> None:
    """Refuse, before any work, a figure whose ending names no format, or that exists already without `force`."""
    check_format(path)
    check_file(path, (), force=force)


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
