"""The hooks that a plugin may implement; each returns component *classes*, never instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from wsl_toolkit.components import Backbone, Dataset, Estimator, Generator

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
