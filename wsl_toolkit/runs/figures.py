"""What a model makes of its labels: sizes, confidence of the truth, calibration, the most ambiguous examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from wsl_toolkit.runs.curves import mean_and_band
from wsl_toolkit.system import figure_style

if TYPE_CHECKING:
    from torch import Tensor

BINS = 10
LONGEST_NAME = 14
MOST_BARS = 6
LETTER = 0.075
"""Room for a letter of a candidate's name, as a share of a full bar."""


def size_histogram(histogram: Tensor, mean: float, title: str) -> Any:
    """Return how many training sets have each size; `histogram` counts sizes 0 to K."""
    sizes = list(range(1, len(histogram)))
    with figure_style.figure(figsize=(6.4, 3.0)) as (canvas, axes):
        axes.bar(sizes, histogram[1:].tolist(), color=figure_style.PALETTE[5], width=0.8)
        axes.axvline(mean, color=figure_style.PALETTE[6], linestyle="--", linewidth=1.2, label=f"mean |s| = {mean:.2f}")
        axes.set(xlabel="size of the candidate set |s|", ylabel="training examples", xlim=(0.4, len(histogram) - 0.4))
        axes.grid(visible=False, axis="x")
        if len(sizes) <= 20:
            axes.set_xticks(sizes)
        axes.legend(loc="best", fontsize="small")
        axes.set_title(figure_style.plain(title), loc="left", fontsize="medium")
    return canvas


def confidence_curve(trials: Sequence[Sequence[float]], chance: float | None, title: str) -> Any:
    """Return the mean confidence r_y(x, s) of the true label on held-out examples against epochs.

    `chance` is what uniform confidences 1/|s| give: where every curve starts that knows nothing.
    """
    with figure_style.figure(figsize=(6.4, 3.4)) as (canvas, axes):
        mean_and_band(axes, trials, "mean over held-out examples")
        if chance is not None:
            axes.axhline(chance, color="0.4", linestyle=":", linewidth=1.2, label="uniform over the candidates")
        axes.set(xlabel="epoch", ylabel="confidence of the true label", ylim=(0, 1.02))
        axes.legend(loc="lower right", fontsize="small")
        axes.set_title(
            figure_style.plain(f"{title}\n(reads clean labels, for this picture alone)"), loc="left", fontsize="small"
        )
    return canvas


@attrs.frozen(kw_only=True)
class Calibration:
    """Predictions in bins of equal width by their probability: how many, how probable, how often right."""

    counts: tuple[int, ...]
    probability: tuple[float, ...]
    accuracy: tuple[float, ...]

    @classmethod
    def of(cls, probability: Tensor, right: Tensor, bins: int = BINS) -> Calibration:
        """Sort predictions into bins by the `probability` [n] of the predicted class; `right` [n]: was it the truth."""
        import torch

        known = probability.isfinite()  # a model that diverged predicts nothing, and its run goes on if asked to
        probability, right = probability[known], right[known]
        place = (probability * bins).long().clamp(max=bins - 1)
        counts = torch.bincount(place, minlength=bins)
        sums = [torch.zeros(bins, dtype=torch.float64).index_add_(0, place, v.double()) for v in (probability, right)]
        means = [total / counts.clamp(min=1) for total in sums]
        return cls(
            counts=tuple(counts.tolist()), probability=tuple(means[0].tolist()), accuracy=tuple(means[1].tolist())
        )

    @property
    def error(self) -> float:
        """The expected calibration error: the mean gap between probability and accuracy, weighted by the counts."""
        total = sum(self.counts)
        gaps = zip(self.counts, self.probability, self.accuracy, strict=True)
        return sum(n * abs(p - a) for n, p, a in gaps) / total if total else float("nan")


def reliability_diagram(found: Calibration, title: str) -> Any:
    """Return accuracy against predicted probability; the diagonal is what honest probabilities give."""
    bins = len(found.counts)
    shown = [i for i, count in enumerate(found.counts) if count]
    with figure_style.figure(nrows=2, sharex=True, figsize=(4.8, 5.2), height_ratios=(3, 1)) as (canvas, (top, bottom)):
        top.plot([0, 1], [0, 1], color="0.4", linestyle=":", linewidth=1.2, label="honest")
        top.bar(
            [(i + 0.5) / bins for i in shown],
            [found.accuracy[i] for i in shown],
            width=0.92 / bins,
            color=figure_style.PALETTE[5],
            label="accuracy",
        )
        top.plot(
            [found.probability[i] for i in shown],
            [found.accuracy[i] for i in shown],
            color=figure_style.PALETTE[1],
            marker="o",
            markersize=4,
            label="at its mean probability",
        )
        top.set(ylabel="share that is right", xlim=(0, 1), ylim=(0, 1.02))
        top.legend(loc="upper left", fontsize="small", frameon=True, framealpha=0.85, edgecolor="none")
        top.set_title(
            figure_style.plain(f"{title}\ncalibration error {found.error:.3f} (test part)"),
            loc="left",
            fontsize="small",
        )
        bottom.bar([(i + 0.5) / bins for i in range(bins)], found.counts, width=0.92 / bins, color="0.6")
        bottom.set(xlabel="predicted probability", ylabel="examples")
    return canvas


@attrs.frozen(kw_only=True, eq=False)
class Ambiguous:
    """An example whose candidates the model can hardly tell apart."""

    index: int
    image: Tensor | None
    """[H, W] or [H, W, 3] between 0 and 1, where the input is one."""
    names: tuple[str, ...]
    """Its candidates, the most likely first …"""
    confidences: tuple[float, ...]
    """… and how much of the set's probability each has."""


def ambiguous_grid(examples: Sequence[Ambiguous], title: str, columns: int = 4) -> Any:
    """Return a grid of examples, each with its candidates as bars as long as their confidence.

    All on one pair of axes with places of our own: as many axes as examples take ten times as long to draw.
    """
    rows = -(-len(examples) // columns)
    pictures = any(example.image is not None for example in examples)
    names = 0.12 + LETTER * max(len(_short(name)) for example in examples for name in example.names)
    width = 1.1 * pictures + names + 1.25
    with figure_style.figure(figsize=(1.05 * width * columns, 1.25 * rows + 0.4)) as (canvas, axes):
        canvas.set_layout_engine("none")
        axes.set_position((0.01, 0.01, 0.98, 0.98 - 0.35 / (1.25 * rows + 0.4)))
        axes.axis("off")
        bars: list[Bar] = []
        for number, example in enumerate(examples):
            row, column = divmod(number, columns)
            if example.image is not None:
                box = (column * width, column * width + 1, row + 0.95, row + 0.05)
                axes.imshow(example.image.numpy(), cmap="gray_r", vmin=0, vmax=1, extent=box)
            bars += _candidates(axes, example, column * width + 1.1 * pictures + names, row)
        _draw(axes, bars)
        axes.set(xlim=(0, width * columns), ylim=(rows, 0), aspect="auto")
        canvas.suptitle(figure_style.plain(title), x=0.01, y=0.99, ha="left", va="top", fontsize="medium")
    return canvas


Bar = tuple[float, float, float, str]
"""Where a bar begins, its middle, its length, its colour."""


def _candidates(axes: Any, example: Ambiguous, left: float, top: float) -> list[Bar]:
    """Write a set's candidates below the example's number; return their bars, a full one of which is one wide."""
    names, values = example.names[:MOST_BARS], example.confidences[:MOST_BARS]
    more = f", {len(example.names) - MOST_BARS} more" if len(example.names) > MOST_BARS else ""
    axes.text(left, top + 0.1, f"no. {example.index}{more}", fontsize=7, color="0.35", va="center")
    bars = []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        middle = top + 0.25 + 0.12 * place
        bars.append((left, middle, value, figure_style.PALETTE[5 if place else 0]))
        axes.text(left - 0.04, middle, _short(name), fontsize=7, ha="right", va="center", parse_math=False)
        axes.text(left + value + 0.03, middle, f"{value:.2f}", fontsize=6, va="center", color="0.35")
    return bars


def _draw(axes: Any, bars: Sequence[Bar], height: float = 0.1) -> None:
    """Draw all bars as one artist: one for each, as `barh` makes them, costs more than the rest of the picture."""
    from matplotlib.collections import PolyCollection

    corners = [
        [(x, y - height / 2), (x + length, y - height / 2), (x + length, y + height / 2), (x, y + height / 2)]
        for x, y, length, _ in bars
    ]
    axes.add_collection(PolyCollection(corners, facecolors=[colour for *_, colour in bars], linewidths=0))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
