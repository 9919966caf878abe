"""Which process is at a run, and whether it still lives; a process number alone is not enough, for it is used again."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class Process:
    """A process of some machine, told from a later one that has the same number by the moment it began."""

    host: str
    boot: str
    pid: int
    began: str

    @classmethod
    def current(cls) -> Process:
        """Return the process that asks."""
        return cls(host=platform.node(), boot=_boot(), pid=os.getpid(), began=_began(os.getpid()) or "")

    def is_local(self) -> bool:
        """Return whether it ran on this machine; of another machine's processes nothing can be known here."""
        return self.host == platform.node()

    def is_alive(self) -> bool:
        """Return whether this very process still runs; only to be asked where `is_local`."""
        return self.boot == _boot() and _began(self.pid) == self.began


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
