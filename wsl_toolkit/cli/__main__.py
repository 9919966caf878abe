"""`python -m wsl_toolkit.cli`: the same as `wsl`."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress

from wsl_toolkit.cli import main

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C stopped, as shells count it."""


def wsl() -> None:
    """Run the command, and end with its exit code."""
    ended_with: list[object] = []
    # Registered before anything else is imported, so that it is the last to be called.
    atexit.register(_end_as_told, ended_with)
    try:
        main(prog_name="wsl")
    except SystemExit as ending:
        ended_with.append(ending.code)
        raise


def _end_as_told(ended_with: list[object]) -> None:
    """End an interrupted program with its exit code, which Python may not do.

    Where Ctrl-C arrives while a C extension (torch's and numpy's initialisation, for instance) runs Python code, Python
    remembers it as unhandled although it was handled, and after `python -m` it kills itself by SIGINT at the very end.
    """
    if ended_with == [INTERRUPTED]:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, full, or not there at all
                stream.flush()
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    wsl()
