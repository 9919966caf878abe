"""First-party plugins: they enter through the same door as anybody else's."""

from __future__ import annotations

from wsl_toolkit import Backbone, Dataset, Estimator, Generator, hookimpl

WSL_API = "1.0"
"""The plugin API that the built-ins are written for."""


@hookimpl
def wsl_register_generators() -> list[type[Generator]]:
    """Return the generators of the map of settings."""
    from wsl_builtins.generators import GENERATORS

    return GENERATORS


@hookimpl
def wsl_register_estimators() -> list[type[Estimator]]:
    """Return the paper's estimator and those it is compared with."""
    from wsl_builtins.estimators import ESTIMATORS

    return ESTIMATORS


@hookimpl
def wsl_register_backbones() -> list[type[Backbone]]:
    """Return the paper's networks."""
    from wsl_builtins.backbones import BACKBONES

    return BACKBONES


@hookimpl
def wsl_register_datasets() -> list[type[Dataset]]:
    """Return the benchmark datasets and readers of common files."""
    from wsl_builtins.datasets import DATASETS

    return DATASETS
