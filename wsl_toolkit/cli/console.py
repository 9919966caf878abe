"""Where commands print: tables and progress for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """Return a rich console on the current stream; it honours NO_COLOR and plain pipes."""
    from rich.console import Console  # not at the top: `wsl list` does without it, and starts faster

    file = sys.stderr if stderr else sys.stdout
    return Console(file=file, highlight=False, soft_wrap=not file.isatty())


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
