"""Requests in a thread of their own, so that no store, however slow its answers trickle, can hold whoever asks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from wsl_toolkit.errors import TrackingError

T = TypeVar("T")


def patience() -> float:
    """Return how many seconds a store gets for one delivery as a whole, however many requests that takes."""
    return 6 * float(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT") or 20)


class Request(Generic[T]):
    """Something that is done in the background; a daemon thread, so that it cannot outlive the process either."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._action = action
        self._error: BaseException | None = None
        self.seconds = 0.0
        """How long it took, once it is done."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="wsl-tracking")
        self._thread.start()

    def _run(self) -> None:
        start = time.monotonic()
        try:
            self._result = self._action()
        except BaseException as error:
            self._error = error
        self.seconds = time.monotonic() - start

    @property
    def is_done(self) -> bool:
        """Whether it ended, well or not."""
        return not self._thread.is_alive()

    def outcome(self, seconds: float) -> T:
        """Return what came of it, or raise its error, or a TrackingError if it takes longer."""
        self._thread.join(seconds)
        if not self.is_done:
            raise TrackingError(f"the store did not answer within {seconds:.0f} seconds")
        if self._error is not None:
            raise self._error
        return self._result
