"""Standard streams that are closed, full or no longer read: output is never a reason to stop training."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from wsl_toolkit.errors import ResourceError


class Stream:
    """A stream whose failures go to `_failed`; everything else is the stream's own."""

    def __init__(self, inner: TextIO) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, text: str) -> int:
        """Write a text."""
        try:
            return self._inner.write(text)
        except (OSError, ValueError) as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        try:
            self._inner.flush()
        except (OSError, ValueError) as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Let what is buffered, and what libraries and children will write, go nowhere."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._inner.fileno())
            os.close(nowhere)


class ResultStream(Stream):
    """Standard output: a result that cannot be written is an error, but not a defect."""

    failure: Exception | None = None

    def _failed(self, error: Exception) -> None:
        super()._failed(error)
        reason = getattr(error, "strerror", None) or str(error)
        unwritten = ResourceError(f"standard output cannot be written ({reason}): what was done is kept")
        # Of a broken pipe nothing is said: its reader has enough.
        self.failure = error if isinstance(error, BrokenPipeError) else unwritten
        raise self.failure from None

    def flush(self) -> None:
        """Hand on what was written; a failure that somebody swallowed comes up again."""
        if self.failure is not None:
            raise self.failure
        super().flush()


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Guard the standard streams for the time of a command."""
    _open_closed_descriptors()
    before = sys.stdout, sys.stderr
    sys.stdout = ResultStream(sys.stdout or _nowhere())
    sys.stderr = Stream(sys.stderr or _nowhere())
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _open_closed_descriptors() -> None:
    """Open closed descriptors on the null device: else the next file, maybe a database, would get what is printed."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")
