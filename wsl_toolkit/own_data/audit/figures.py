"""The audit's plots: sizes of sets, classes, and which candidates keep company."""

from __future__ import annotations

from typing import Any

from wsl_toolkit.own_data.audit.counting import Counts
from wsl_toolkit.system.figure_style import figure

MOST_BARS = 40
LONGEST_NAME = 24


def sizes_figure(counts: Counts) -> Any:
    """Return how many sets have each size."""
    sizes = counts.histogram.nonzero().flatten()
    with figure(figsize=(6.4, 3.2)) as (canvas, axes):
        axes.bar(sizes.numpy(), counts.histogram[sizes].numpy(), width=0.8)
        axes.set_xlabel("candidates in a set")
        axes.set_ylabel("examples")
    return canvas


def classes_figure(counts: Counts) -> Any:
    """Return how many sets hold each class, the rarest and the most frequent ones where there are many."""
    order = counts.class_counts.argsort(descending=True, stable=True)
    if len(order) > MOST_BARS:
        import torch

        order = torch.cat([order[: MOST_BARS // 2], order[-MOST_BARS // 2 :]])
    names = [_short(counts.names[j]) for j in order.tolist()]
    with figure(figsize=(6.4, 1.2 + 0.2 * len(names))) as (canvas, axes):
        axes.barh(range(len(names)), counts.class_counts[order].numpy())
        axes.set_yticks(range(len(names)), names, fontsize="small", parse_math=False)
        axes.invert_yaxis()
        axes.set_xlabel("sets that hold the class")
    return canvas


def companions_figure(counts: Counts) -> Any:
    """Return the share of the sets with one class (row) that hold another (column)."""
    share = counts.cooccurrence.double() / counts.class_counts.clamp(min=1).double()[:, None]
    share.fill_diagonal_(float("nan"))
    side = min(9.0, 2.5 + 0.22 * counts.num_classes)
    with figure(figsize=(side + 1, side)) as (canvas, axes):
        image = axes.imshow(share.numpy(), vmin=0, vmax=1, cmap="viridis")
        axes.grid(visible=False)
        if counts.num_classes <= MOST_BARS:
            ticks, names = range(counts.num_classes), [_short(name) for name in counts.names]
            axes.set_xticks(ticks, names, rotation=90, fontsize="x-small", parse_math=False)
            axes.set_yticks(ticks, names, fontsize="x-small", parse_math=False)
        axes.set_xlabel("… that hold this class too")
        axes.set_ylabel("sets with this class …")
        canvas.colorbar(image, ax=axes, label="share of sets", fraction=0.046)
    return canvas


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
