"""Writing files and folders so that a reader sees the old one or the new one, never a half."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["replacing", "write_atomically"]

SHOWN = 40
"""A temporary name begins with this much of the real one: all of a long name would be too long with what is added."""


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write to a temporary file beside `path`, flush it to disk, and rename it into place."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to; a block that ends well puts the file in its place.

    A new file may be read by whom the user's umask allows it, one that replaces another by whom that one could.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:SHOWN]}.{secrets.token_hex(8)}")
    # Not by mkstemp, whose files are the user's alone whatever the umask says.
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        if path.is_file():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_REMAINS = re.compile(rf"\..{{1,{SHOWN}}}\.[0-9a-f]{{16}}", re.DOTALL)
REMAINS_SECONDS = 3600.0
"""Nobody takes so long to write one of the toolkit's own files."""


def remove_remains(folder: Path) -> None:
    """Remove the temporary files in a folder whose writer was killed: those that nobody has touched for an hour."""
    with contextlib.suppress(OSError):  # another command removes them, or nobody may
        for entry in os.scandir(folder):
            old = time.time() - entry.stat(follow_symlinks=False).st_mtime > REMAINS_SECONDS
            if old and _REMAINS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Give a path to make a folder at; a block that ends well puts that folder in the place of the one at `path`.

    The two are exchanged in one step where the system can. Where it cannot, an error or an interruption between the
    two renames puts the old folder back; a process that is killed there leaves it in a hidden folder beside `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:SHOWN]}."))
    made, aside = work / "new", work / "old"
    try:
        yield made
        if not path.exists() or not exchange(made, path):
            _swap_by_two_renames(made, path, aside)
    finally:
        if path.exists() or not aside.exists():  # else the old folder is all that there is
            shutil.rmtree(work, ignore_errors=True)


def _swap_by_two_renames(made: Path, path: Path, aside: Path) -> None:
    try:
        if path.exists():
            path.rename(aside)
        made.rename(path)
    finally:
        if aside.exists() and not path.exists():
            aside.rename(path)


AT_THE_WORKING_DIRECTORY, RENAME_EXCHANGE, RENAME_SWAP = -100, 2, 2


def exchange(one: Path, other: Path) -> bool:
    """Exchange two paths in one step; False, with nothing changed, where the system cannot do that."""
    names = [os.fsencode(path) for path in (one, other)]
    library: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, ctypes.c_uint(RENAME_SWAP))
    elif sys.platform == "linux" and hasattr(library, "renameat2"):
        here = AT_THE_WORKING_DIRECTORY
        failed = library.renameat2(here, names[0], here, names[1], ctypes.c_uint(RENAME_EXCHANGE))
    else:
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))
