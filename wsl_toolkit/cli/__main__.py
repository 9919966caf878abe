"""The program `wsl`, and `python -m wsl_toolkit.cli`, which is the same."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from contextlib import suppress

from wsl_toolkit.cli import main


def wsl() -> None:
    """Run the command, and end with its exit code."""
    # The modules of torch and MLflow are a million objects that stay: looking through them for garbage every few
    # thousand new ones takes up to a tenth of a short command's time. Here, because the process is the program's own.
    gc.set_threshold(50_000, 100, 100)
    ended_with: list[int] = []
    # Registered before anything else is imported, so that it is the last to be called.
    atexit.register(_end_at_once, ended_with)
    try:
        main(prog_name="wsl")
    except SystemExit as ending:
        ended_with.append(ending.code if isinstance(ending.code, int) else int(ending.code is not None))
        raise


def _end_at_once(ended_with: list[int]) -> None:
    """End the program when all that must be done at its end is done, without taking its modules apart.

    Freeing every object of torch and MLflow one by one takes Python a second or two. And where Ctrl-C arrives while a
    C extension (torch's and numpy's initialisation, for instance) runs Python code, Python remembers it as unhandled
    although it was handled, and after `python -m` it would kill itself by SIGINT at the very end.
    """
    if ended_with:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, full, or not there at all
                stream.flush()
        os._exit(ended_with[0])


if __name__ == "__main__":
    wsl()
