"""Our own components keep the contracts that plugin authors inherit; new ones are covered by being registered."""

from __future__ import annotations

from typing import Any

import pytest

from wsl_toolkit.plugins import load_plugins
from wsl_toolkit.registry import OWN_DISTRIBUTION
from wsl_toolkit.testing import BackboneContract, DatasetContract, EstimatorContract, GeneratorContract


def built_in(role: str) -> list[Any]:
    """Return our components of a role, as they come."""
    registry = load_plugins().registry
    entries = [registry.entry(role, name) for name in registry.names(role)]
    return [pytest.param(e.cls(), id=e.cls.name) for e in entries if e.owner.distribution == OWN_DISTRIBUTION]


class TestGenerators(GeneratorContract):
    @pytest.fixture(params=built_in("generator"))
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param


class TestEstimators(EstimatorContract):
    @pytest.fixture(params=built_in("estimator"))
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param


class TestBackbones(BackboneContract):
    @pytest.fixture(params=built_in("backbone"))
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param


class TestBundledData(DatasetContract):
    component = load_plugins().registry.get("dataset", "digits")()
