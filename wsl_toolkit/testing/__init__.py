"""Contracts that plugin authors inherit: supply a component, get the checks.

    from wsl_toolkit.testing import EstimatorContract

    class TestMine(EstimatorContract):
        component = MyEstimator()

pytest finds the fixtures by itself where wsl-toolkit is installed. Our own built-ins keep the same contracts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsl_toolkit.testing.backbones import BackboneContract
    from wsl_toolkit.testing.callbacks import CallbackContract
    from wsl_toolkit.testing.datasets import DatasetContract
    from wsl_toolkit.testing.estimators import EstimatorContract
    from wsl_toolkit.testing.generators import GeneratorContract
    from wsl_toolkit.testing.metrics import MetricContract
    from wsl_toolkit.testing.optimizers import OptimizerContract
    from wsl_toolkit.testing.schedulers import SchedulerContract
    from wsl_toolkit.testing.transforms import TransformContract

__all__ = [
    "BackboneContract",
    "CallbackContract",
    "DatasetContract",
    "EstimatorContract",
    "GeneratorContract",
    "MetricContract",
    "OptimizerContract",
    "SchedulerContract",
    "TransformContract",
]


CONTRACTS = (
    "GeneratorContract",
    "EstimatorContract",
    "BackboneContract",
    "DatasetContract",
    "TransformContract",
    "MetricContract",
    "OptimizerContract",
    "SchedulerContract",
    "CallbackContract",
)
"""Every contract, in the order of the roles."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = f"wsl_toolkit.testing.{name.removesuffix('Contract').lower()}s"
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'wsl_toolkit.testing' has no attribute {name!r}")
