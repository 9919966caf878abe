"""A study small enough to run in a second: bundled data, two methods, a grid of two, two trials."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "name": "small",
    "trials": 2,
    "training": {"epochs": 3, "batch_size": 128, "validation": 0.1},
    "search": {"epochs": 2, "space": {"lr": [0.01, 0.1], "weight_decay": [1e-4]}},
    "settings": [{"dataset": "digits", "generator": {"name": "mcl-skewed", "alpha": 0.8}, "backbone": "linear"}],
    "methods": [{"estimator": "ppl", "label": "PPL"}, {"estimator": "cc", "label": "CC"}],
}
