"""Where commands print: tables and progress for people, JSON for scripts."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that command a terminal (colours, cursor, title, clipboard) or turn the direction of writing."""


def printable(text: str) -> str:
    """Return a text whose control characters are shown, not obeyed: names and labels come from anywhere."""
    return CONTROL.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def console(*, stderr: bool = False) -> Console:
    """Return a rich console on the current stream; it honours NO_COLOR and plain pipes, and obeys no text."""
    from wsl_toolkit.cli.safe_console import SafeConsole  # `wsl list` does without rich, and starts faster

    file = sys.stderr if stderr else sys.stdout
    return SafeConsole(file=file, highlight=False, soft_wrap=not file.isatty())


def print_json(value: Any) -> None:
    """Print one JSON document on standard output; control characters that JSON itself allows are escaped too."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
