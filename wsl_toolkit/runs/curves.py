"""Learning curves: the mean over trials, with a band of one standard error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wsl_toolkit.system.figure_style import figure

ACCURACIES = {
    "test/accuracy": "test accuracy",
    "validation/covering_rate": "covering rate (held out)",
    "validation/approximated_accuracy": "approximated accuracy (held out)",
}
RISKS = {"train/risk": "training risk", "validation/risk": "held-out risk"}


def learning_curves(trials: Sequence[Sequence[dict[str, float]]], title: str) -> Any:
    """Return a figure with accuracies on top and risks below, against epochs."""
    with figure(nrows=2, sharex=True, figsize=(6.4, 5.6)) as (canvas, (top, bottom)):
        for axes, names in ((top, ACCURACIES), (bottom, RISKS)):
            for key, label in names.items():
                if key in trials[0][0]:
                    mean_and_band(axes, [[epoch[key] for epoch in trial] for trial in trials], label)
            axes.legend(loc="best", fontsize="small")
        top.set_ylabel("share")
        bottom.set_ylabel("risk")
        bottom.set_xlabel("epoch")
        canvas.suptitle(title, fontsize="medium")
    return canvas


def mean_and_band(axes: Any, curves: Sequence[Sequence[float]], label: str, **style: Any) -> None:
    """Draw the mean of several curves and, where there are several, one standard error around it."""
    import numpy as np

    values = np.asarray(curves, dtype=float)
    epochs = np.arange(1, values.shape[1] + 1)
    mean = values.mean(axis=0)
    (line,) = axes.plot(epochs, mean, label=label, **style)
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes.fill_between(epochs, mean - error, mean + error, color=line.get_color(), alpha=0.2, linewidth=0)
