"""The hooks that a plugin may implement; each returns component *classes*, never instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from wsl_toolkit.components import (
        Backbone,
        Callback,
        Dataset,
        Estimator,
        Generator,
        Metric,
        Optimizer,
        Scheduler,
        Transform,
    )

PROJECT = "wsl_toolkit"
"""Both pluggy's project name and the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's implementation of a hook."""


@hookspec
def wsl_register_generators() -> Sequence[type[Generator]]:  # type: ignore[empty-body]
    """Return label generators: how candidate sets come about."""


@hookspec
def wsl_register_estimators() -> Sequence[type[Estimator]]:  # type: ignore[empty-body]
    """Return risk estimators: how a classifier is learned from candidate sets."""


@hookspec
def wsl_register_backbones() -> Sequence[type[Backbone]]:  # type: ignore[empty-body]
    """Return backbones: the networks that turn inputs into logits."""


@hookspec
def wsl_register_datasets() -> Sequence[type[Dataset]]:  # type: ignore[empty-body]
    """Return datasets: inputs with true labels, candidate sets, or both."""


@hookspec
def wsl_register_transforms() -> Sequence[type[Transform]]:  # type: ignore[empty-body]
    """Return transforms: what happens to candidate sets before training."""


@hookspec
def wsl_register_metrics() -> Sequence[type[Metric]]:  # type: ignore[empty-body]
    """Return metrics: what is measured on held-out data after each epoch."""


@hookspec
def wsl_register_optimizers() -> Sequence[type[Optimizer]]:  # type: ignore[empty-body]
    """Return optimisers, beside those of torch.optim."""


@hookspec
def wsl_register_schedulers() -> Sequence[type[Scheduler]]:  # type: ignore[empty-body]
    """Return learning-rate schedules."""


@hookspec
def wsl_register_callbacks() -> Sequence[type[Callback]]:  # type: ignore[empty-body]
    """Return callbacks: who hears of a training, and may log or end it."""
