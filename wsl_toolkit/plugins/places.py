"""Where a function or a class was written, as errors and warnings say it: 'file.py:12'."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any


def defined_at(function: Any) -> str:
    """Return where a function was written, 'file.py:12'; nothing where that cannot be told."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else ""


def class_defined_at(cls: type) -> str:
    """Return where a class was written, by its source or else by the first of its functions."""
    try:
        _, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return next(filter(None, map(defined_at, vars(cls).values())), "")
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return f"{Path(file).name}:{first}" if file else ""
