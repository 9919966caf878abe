"""A tracked, resumable run: its folder on disk, its result, its figures, and its record in MLflow.

The name is the room's, and what people type for a table of their runs. Importing any module of the room binds the room
to that name, whatever was there before; so the room itself can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    """This package, which can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the tracked runs as a table; see `wsl_toolkit.runs.listing.runs`."""
        from wsl_toolkit.runs.listing import runs

        return runs(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
