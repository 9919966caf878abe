"""A small table on disk that several processes fill: what one of them has chosen for a key, all of them use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.system.json_files import read_json, sealed, unsealed

LOCK_SECONDS = 5.0
"""Nobody holds the lock for longer than it takes to write a few kilobytes."""


class KeptChoices:
    """Choices by key: in this process's memory and, with a `path`, in a file.

    The first to keep a choice decides; whoever comes later gets that one back. A file that cannot be read is said and
    written anew; one that cannot be written leaves the choice in memory.
    """

    def __init__(
        self, path: Path | None = None, note: Callable[[str], None] = lambda text: None, *, writes: bool = True
    ) -> None:
        self.path = path
        self._writes = writes
        self._note = note
        self._known: dict[str, dict[str, Any]] = {}
        self._said = False

    def find(self, key: str) -> dict[str, Any] | None:
        """Return what was chosen for a key, or None."""
        if key not in self._known:
            self._known |= {name: each for name, each in self._read().items() if name not in self._known}
        return self._known.get(key)

    def keep(self, key: str, choice: dict[str, Any]) -> dict[str, Any]:
        """Keep a choice, and return the one that counts: another process may have been faster."""
        if self.path is not None and self._writes:
            try:
                choice = self._written(self.path, key, choice)
            except (OSError, TimeoutError) as error:
                self._say(f"{self.path} cannot be written ({error}): what was measured is kept for this process only")
        return self._known.setdefault(key, choice)

    def _written(self, path: Path, key: str, choice: dict[str, Any]) -> dict[str, Any]:
        from filelock import FileLock

        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock"), timeout=LOCK_SECONDS, poll_interval=0.02):
            kept = self._read()
            if key not in kept:
                kept[key] = choice
                write_atomically(path, sealed({"choices": kept}, indent=1) + "\n")
            return kept[key]

    def _read(self) -> dict[str, dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            found = unsealed(read_json(self.path)).get("choices")
            if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
                raise ValueError("it holds no choices")
            return found
        except (OSError, ValueError) as error:
            self._say(f"{self.path} is not used ({error}): what it held is measured again")
            return {}

    def _say(self, text: str) -> None:
        if not self._said:
            self._note(text)
        self._said = True
