"""Which process works in a folder, and whether it still does: it holds a file lock, which the system lets go with it.

A process number is for messages: it is used again, and another container has others.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Process:
    """A process of some machine, told from a later one that has the same number by the moment it began."""

    host: str
    boot: str
    pid: int
    began: str
    locks: bool = False
    """Whether it holds the lock of its folder while it lives; processes of release 0.1 did not."""

    @classmethod
    def current(cls) -> Process:
        """Return the process that asks."""
        return cls(host=platform.node(), boot=_boot(), pid=os.getpid(), began=_began(os.getpid()) or "", locks=True)

    def is_local(self) -> bool:
        """Return whether it ran on this machine; of another machine's processes nothing can be known here."""
        return self.host == platform.node()

    def is_alive(self) -> bool:
        """Return whether this very process still runs; only to be asked where `is_local`."""
        return self.boot == _boot() and _began(self.pid) == self.began


class FolderLock:
    """A lock that a process holds on a folder from `acquire` to its own end; it moves with the folder."""

    NAME = "process.lock"

    def __init__(self) -> None:
        self._held: Any = None

    def acquire(self, folder: Path, seconds: float = 2.0) -> bool:
        """Return whether the lock was free; somebody who only looks holds it for an instant."""
        from filelock import FileLock, Timeout

        lock = FileLock(folder / self.NAME)
        try:
            lock.acquire(timeout=seconds, poll_interval=0.02)
        except Timeout:
            return False
        self._held = lock
        return True

    def release(self) -> None:
        """Let the lock go, if it is held."""
        if self._held is not None:
            self._held.release()
            self._held = None

    @classmethod
    def is_held(cls, folder: Path) -> bool:
        """Return whether a living process holds the lock of a folder."""
        if not (folder / cls.NAME).exists():
            return False
        look = cls()
        free = look.acquire(folder, seconds=0)
        look.release()
        return not free


def _boot() -> str:
    """Return what tells this start of the machine from the last, where the system says it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """Return when a process began, in the system's own words, or None if there is none (or only its remains)."""
    try:
        # The command's name may hold spaces and brackets; what follows its last bracket is regular.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _began_by_ps(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _began_by_ps(pid: int) -> str | None:
    """Ask ps, on systems without /proc."""
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None
