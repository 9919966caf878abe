"""The one look of every figure: the Okabe-Ito palette, thin axes, a light grid."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.system.files import write_atomically

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito (2008): told apart by people with any common colour blindness, and in grey."""

STYLE: dict[str, Any] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 120,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": 160,
}


@contextmanager
def figure(**kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """Open a matplotlib figure with its axes in our style, without a display; it is closed afterwards."""
    import matplotlib
    from cycler import cycler
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "axes.prop_cycle": cycler(color=PALETTE)}):
        canvas_figure = Figure(figsize=kwargs.pop("figsize", (6.4, 4.0)))
        FigureCanvasAgg(canvas_figure)
        yield canvas_figure, canvas_figure.subplots(**kwargs)


def plain(text: str) -> str:
    """Return text that matplotlib shows as it is, dollar signs included."""
    return text.replace("$", r"\$")


def png(canvas_figure: Any, metadata: dict[str, Any] | None = None) -> bytes:
    """Return a figure of ours as PNG: the bytes of `savefig`, which draws a figure twice, for one drawing."""
    buffer = io.BytesIO()
    canvas_figure.canvas.print_png(buffer, metadata=metadata)
    return buffer.getvalue()


def save(canvas_figure: Any, path: Path, dpi: float | str | None = None) -> None:
    """Write a figure atomically; the suffix (png, svg, pdf) says the format."""
    suffix = check_format(path)
    if suffix == "png" and dpi is None:
        write_atomically(path, png(canvas_figure))
        return
    buffer = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else {"CreationDate": None} if suffix == "pdf" else None
    canvas_figure.savefig(buffer, format=suffix, metadata=metadata, **({} if dpi is None else {"dpi": dpi}))
    write_atomically(path, buffer.getvalue())


def check_format(path: Path) -> str:
    """Return a figure's format by its suffix; another one is refused, before any work is done for it."""
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in ("png", "svg", "pdf"):
        raise ConfigError(f"a figure is written as .png, .svg or .pdf, not {path.name!r}")
    return suffix
