"""Folders on a disk that several machines share, in which one process leads and others, elsewhere, follow it.

The leader holds the folder's lock, and touches a file in it now and then, by which those on other machines, where a
lock may not be seen, know that it lives. A leader that ends leaves no such file; one that was killed leaves its last.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from pathlib import Path

from wsl_toolkit.system.files import REMAINS_SECONDS
from wsl_toolkit.system.processes import FolderLock

ALIVE = "driver-is-alive"
BEAT_SECONDS = 10.0


class SharedWork:
    """A new folder below another, led by this process until it is closed."""

    def __init__(self, below: Path, prefix: str) -> None:
        below.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=below)).resolve()
        self._lock = FolderLock()
        self._lock.acquire(self.folder)
        self.alive.touch()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> Path:
        """The file that is touched as long as this process lives."""
        return self.folder / ALIVE

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):  # a full or slow disk: the next beat may come through
                self.alive.touch()

    def close(self, *, keep: bool) -> None:
        """Let the folder go: remove it, or keep what somebody may want to read."""
        self._closed.set()
        self._thread.join()
        self._lock.release()
        with contextlib.suppress(OSError):
            self.alive.unlink(missing_ok=True)
            (self.folder / FolderLock.NAME).unlink(missing_ok=True)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def remove_abandoned(below: Path) -> None:
    """Remove the folders whose leader was killed: nobody holds their lock, nor has given a sign of life for an hour."""
    for sign in below.glob(f"*/{ALIVE}"):
        with contextlib.suppress(OSError):  # another command removes it, or nobody may
            old = time.time() - sign.stat().st_mtime > REMAINS_SECONDS
            if old and not FolderLock.is_held(sign.parent):
                shutil.rmtree(sign.parent, ignore_errors=True)
