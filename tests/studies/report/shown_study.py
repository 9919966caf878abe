"""A small study whose names try to break every format."""

from __future__ import annotations

from typing import Any

NASTY = "<script>alert('x')</script> & $a_b$ | 100% *bold* \\ #1"

DESCRIPTION: dict[str, Any] = {
    "name": "shown",
    "title": NASTY,
    "trials": 3,
    "training": {"epochs": 3, "batch_size": 128, "validation": 0.1},
    "search": {"epochs": 2, "space": {"lr": [0.01, 0.1], "weight_decay": [1e-4, 1e-2]}},
    "settings": [
        {
            "dataset": "digits",
            "generator": [{"name": "mcl-skewed", "alpha": 0.9}, {"name": "mcl-skewed", "alpha": 0.7}],
            "backbone": "linear",
        }
    ],
    "methods": [{"estimator": "ppl", "label": NASTY}, {"estimator": "cc", "label": "=CC"}],
}
