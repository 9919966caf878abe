"""From files to a learning problem: datasets, table schemas, inputs, splits, file formats."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsl_toolkit.data.dataset import Data

__all__ = ["Data"]

_MODULES = {"Data": "dataset"}


def __getattr__(name: str) -> Any:
    # Loaded on first use: commands that only look around import neither torch nor NumPy.
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
