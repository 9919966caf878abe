"""Figures that a notebook shows: ours are made without pyplot, which would otherwise teach IPython to draw them."""

from __future__ import annotations

import io
import sys
from typing import Any


def shown(figure: Any) -> Any:
    """Return a figure as it is, and see to it that a notebook draws it where it is a cell's last value."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        from matplotlib.figure import Figure

        formatter = shell.display_formatter.formatters["image/png"]
        if Figure not in formatter.type_printers:
            formatter.for_type(Figure, _png)
    return figure


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
