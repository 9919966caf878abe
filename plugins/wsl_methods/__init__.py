"""The field's methods beside the paper's own comparisons, through the same door as anybody else's.

One module per paper, each with its citation and its equations first and a list `ESTIMATORS` of what it adds.
"""

from __future__ import annotations

import importlib

from wsl_toolkit import Estimator, Transform, hookimpl

WSL_API = "1.0"
"""The plugin API that these methods are written for."""

MODULES = (
    "able",
    "alim",
    "cavl",
    "cel",
    "clpl",
    "cpe",
    "cr_dpll",
    "crosel",
    "dirk",
    "discriminative",
    "fredis",
    "gfws",
    "htc",
    "idgp",
    "order_preserving",
    "papi",
    "pico",
    "pico_plus",
    "pl_svm",
    "pop",
    "records",
    "scarce",
    "solar",
    "transition_risk",
    "valen",
    "vi_pll",
    "wsc",
)
"""The modules that add estimators; each has a list `ESTIMATORS`."""

TRANSFORM_MODULES = ("clsp", "conformal")
"""The modules that add transforms of candidate sets; each has a list `TRANSFORMS`."""


@hookimpl
def wsl_register_estimators() -> list[type[Estimator]]:
    """Return the estimators of all modules."""
    modules = (importlib.import_module(f"{__name__}.{name}") for name in MODULES)
    return [estimator for module in modules for estimator in module.ESTIMATORS]


@hookimpl
def wsl_register_transforms() -> list[type[Transform]]:
    """Return the transforms of all modules."""
    modules = (importlib.import_module(f"{__name__}.{name}") for name in TRANSFORM_MODULES)
    return [transform for module in modules for transform in module.TRANSFORMS]
