"""wsl_toolkit: partial-label learning, proven by enumeration and open to plugins.

The names below are the public surface for plugin authors and library users. They are loaded on first use, so that
importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wsl_toolkit.version import API_VERSION, __version__

if TYPE_CHECKING:
    from wsl_toolkit.components import (
        Backbone,
        Dataset,
        Estimator,
        Generator,
        Kind,
        ProperGenerator,
        Setting,
        State,
        param,
    )
    from wsl_toolkit.data.dataset import Data
    from wsl_toolkit.hookspecs import hookimpl
    from wsl_toolkit.labels.candidate_sets import CandidateSets

_HOME = {
    "Backbone": "components",
    "CandidateSets": "labels",
    "Data": "data",
    "Dataset": "components",
    "Estimator": "components",
    "Generator": "components",
    "Kind": "settings",
    "ProperGenerator": "components",
    "Setting": "settings",
    "State": "components",
    "hookimpl": "hookspecs",
    "param": "parameters",
}

__all__ = [
    "API_VERSION",
    "Backbone",
    "CandidateSets",
    "Data",
    "Dataset",
    "Estimator",
    "Generator",
    "Kind",
    "ProperGenerator",
    "Setting",
    "State",
    "__version__",
    "hookimpl",
    "param",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"wsl_toolkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'wsl_toolkit' has no attribute {name!r}")
