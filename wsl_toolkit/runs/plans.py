"""Where a workspace keeps the plans that were measured: one small file, `wsl-runs/plans.json`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wsl_toolkit.system.kept_choices import KeptChoices

FILE = "plans.json"


def choices_in(home: Path, note: Callable[[str], None] = lambda text: None, *, writes: bool = True) -> KeptChoices:
    """Return the kept plans of a workspace; without `writes`, what is measured stays in memory."""
    return KeptChoices(home / FILE, note, writes=writes)
