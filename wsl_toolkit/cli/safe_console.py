"""A rich console that shows control characters in texts instead of sending them to the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from wsl_toolkit.cli.console import printable


class SafeConsole(Console):
    """Every text that is printed, alone or in a table's cell, passes `render_str`."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a text without its control characters."""
        return super().render_str(printable(text), **options)
