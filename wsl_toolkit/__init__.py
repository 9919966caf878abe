"""wsl_toolkit: partial-label learning, proven by enumeration and open to plugins.

The names below are the public surface for plugin authors and library users. They are loaded on first use, so that
importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wsl_toolkit.version import API_VERSION, __version__

if TYPE_CHECKING:
    from wsl_toolkit.api.components import component
    from wsl_toolkit.api.data import draw, load_data, make_data
    from wsl_toolkit.api.own_data import AuditReport, Cleaning, audit, clean
    from wsl_toolkit.api.proofs import Inspection, Verification, inspect, verify
    from wsl_toolkit.api.result import Comparison, Result, Trial, compare
    from wsl_toolkit.api.risk import PartialLabelDataset, PartialLabelRisk, risk
    from wsl_toolkit.api.study import Study
    from wsl_toolkit.api.train import load_run, resume, train
    from wsl_toolkit.components import (
        Backbone,
        Callback,
        Dataset,
        Estimator,
        Generator,
        Kind,
        Metric,
        Optimizer,
        ProperGenerator,
        Scheduler,
        Setting,
        State,
        Transform,
        param,
    )
    from wsl_toolkit.data.dataset import Data
    from wsl_toolkit.hookspecs import hookimpl
    from wsl_toolkit.labels.annotators import Annotator
    from wsl_toolkit.labels.candidate_sets import CandidateSets
    from wsl_toolkit.runs.listing import runs

_HOME = {
    "Annotator": "labels.annotators",
    "AuditReport": "api.own_data",
    "Backbone": "components",
    "Callback": "components",
    "CandidateSets": "labels",
    "Cleaning": "api.own_data",
    "Comparison": "api.result",
    "Data": "data",
    "Dataset": "components",
    "Estimator": "components",
    "Generator": "components",
    "Inspection": "api.proofs",
    "Kind": "settings",
    "PartialLabelDataset": "api.risk",
    "PartialLabelRisk": "api.risk",
    "Metric": "components",
    "Optimizer": "components",
    "Scheduler": "components",
    "Transform": "components",
    "ProperGenerator": "components",
    "Result": "api.result",
    "Setting": "settings",
    "State": "components",
    "Study": "api.study",
    "Trial": "api.result",
    "Verification": "api.proofs",
    "audit": "api.own_data",
    "clean": "api.own_data",
    "compare": "api.result",
    "component": "api.components",
    "draw": "api.data",
    "hookimpl": "hookspecs",
    "inspect": "api.proofs",
    "load_data": "api.data",
    "load_run": "api.train",
    "make_data": "api.data",
    "param": "parameters",
    "resume": "api.train",
    "risk": "api.risk",
    "train": "api.train",
    "verify": "api.proofs",
}

__all__ = [
    "API_VERSION",
    "Annotator",
    "AuditReport",
    "Backbone",
    "Callback",
    "CandidateSets",
    "Cleaning",
    "Comparison",
    "Data",
    "Dataset",
    "Estimator",
    "Generator",
    "Inspection",
    "Kind",
    "Metric",
    "Optimizer",
    "PartialLabelDataset",
    "PartialLabelRisk",
    "ProperGenerator",
    "Result",
    "Scheduler",
    "Setting",
    "State",
    "Study",
    "Transform",
    "Trial",
    "Verification",
    "__version__",
    "audit",
    "clean",
    "compare",
    "component",
    "draw",
    "hookimpl",
    "inspect",
    "load_data",
    "load_run",
    "make_data",
    "param",
    "resume",
    "risk",
    "runs",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "runs":  # a package that can be called: see there
        return importlib.import_module("wsl_toolkit.runs")
    if name in _HOME:
        return getattr(importlib.import_module(f"wsl_toolkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'wsl_toolkit' has no attribute {name!r}")
