"""Ctrl-C and SIGTERM as a request that is granted between two batches; nothing is ever raised from a handler."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from wsl_toolkit.errors import InterruptedRunError

HEARD = (signal.SIGINT, signal.SIGTERM)
_pressed = False


class StopRequest:
    """Whether somebody asked the run to stop, and with which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self.signal is not None

    def grant(self, text: str = "") -> None:
        """End the run here if somebody asked for it."""
        if self.signal is not None:
            raise InterruptedRunError(f"stopped by {self.sender}{text}", exit_code=128 + self.signal)

    @property
    def sender(self) -> str:
        """Who asked, as a user calls it."""
        return "Ctrl-C" if self.signal in (None, signal.SIGINT) else signal.Signals(self.signal).name


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM into a request; a second one ends the process at once, as by default.

    An exception out of a handler may surface inside a database transaction or a C extension and leave either in a
    state that nobody thought of. Handlers belong to the main thread; elsewhere nothing is installed.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def note(number: int, _: FrameType | None) -> None:
        if request.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        request.signal = number

    before = {number: signal.signal(number, note) for number in HEARD}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def remembering_ctrl_c() -> Iterator[None]:
    """Remember Ctrl-C beside raising KeyboardInterrupt, as Python does by itself.

    A library that is interrupted while it is imported may swallow the exception, and then raises anything at all:
    `ctrl_c_was_pressed` tells what was behind it.
    """
    global _pressed
    _pressed = False
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def remember(number: int, frame: FrameType | None) -> None:
        global _pressed
        _pressed = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ctrl_c_was_pressed() -> bool:
    """Return whether Ctrl-C interrupted the command that `remembering_ctrl_c` surrounds."""
    return _pressed
