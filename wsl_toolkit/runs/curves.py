"""Learning curves: the mean over trials, with a band of one standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wsl_toolkit.system.figure_style import figure
from wsl_toolkit.training.metrics import METRICS


def learning_curves(trials: Sequence[Sequence[dict[str, float]]], title: str) -> Any:
    """Return a figure with accuracies on top and risks below, against epochs."""
    with figure(nrows=2, sharex=True, figsize=(6.4, 5.6)) as (canvas, (top, bottom)):
        for axes, panel in ((top, "share"), (bottom, "risk")):
            for metric in METRICS.values():
                if metric.curve and metric.scale == panel and metric.name in trials[0][0]:
                    curves = [[epoch[metric.name] for epoch in trial] for trial in trials]
                    mean_and_band(axes, curves, metric.label)
            axes.legend(loc="best", fontsize="small")
        top.set_ylabel("share")
        bottom.set_ylabel("risk")
        bottom.set_xlabel("epoch")
        canvas.suptitle(title, fontsize="medium")
    return canvas


def mean_and_band(axes: Any, curves: Sequence[Sequence[float]], label: str, **style: Any) -> None:
    """Draw the mean of several curves and, where there are several, one standard error around it."""
    import numpy as np

    longest = max(len(curve) for curve in curves)
    values = np.full((len(curves), longest), np.nan)  # trainings may stop at different epochs
    for row, curve in zip(values, curves, strict=True):
        row[: len(curve)] = curve
    epochs = np.arange(1, longest + 1)
    mean = np.nanmean(values, axis=0)
    (line,) = axes.plot(epochs, mean, label=label, **style)
    if len(values) > 1:
        count = (~np.isnan(values)).sum(axis=0)
        spread = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(count - 1, 1))
        error = np.where(count > 1, spread / np.sqrt(count), 0.0)
        axes.fill_between(epochs, mean - error, mean + error, color=line.get_color(), alpha=0.2, linewidth=0)
