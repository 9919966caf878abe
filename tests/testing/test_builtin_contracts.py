"""Our own components keep the contracts that plugin authors inherit; new ones are covered by being registered."""

from __future__ import annotations

from typing import Any

import pytest

from wsl_toolkit.parameters import parameters_of
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import OWN_DISTRIBUTION
from wsl_toolkit.testing import (
    BackboneContract,
    DatasetContract,
    EstimatorContract,
    GeneratorContract,
    TransformContract,
)
from wsl_toolkit.testing.common import ComponentContract
from wsl_toolkit.testing.declared import made_as_declared


def built_in(role: str) -> list[Any]:
    """Return our components of a role as they come; readers of users' files cannot be made without one."""
    registry = load_plugins().registry
    entries = [registry.entry(role, name) for name in registry.names(role)]
    ours = [entry.cls for entry in entries if entry.owner.distribution == OWN_DISTRIBUTION]
    return [
        pytest.param(cls(), id=cls.name) for cls in ours if not any(p.required for p in parameters_of(cls).values())
    ]


class TestGenerators(GeneratorContract):
    @pytest.fixture(params=built_in("generator"))
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param


class TestEstimators(EstimatorContract):
    @pytest.fixture(params=built_in("estimator"))
    def component(self, request: pytest.FixtureRequest) -> Any:
        return made_as_declared(type(request.param), self)


class TestTransforms(TransformContract):
    @pytest.fixture(params=built_in("transform"))
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param


class TestBackbones(BackboneContract):
    @pytest.fixture(params=built_in("backbone"))
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param


class TestBundledData(DatasetContract):
    component = load_plugins().registry.get("dataset", "digits")()


class TestEveryDatasetWithoutItsFiles(ComponentContract):
    """What can be said of a benchmark whose files are not here; readers of users' files are tried with files."""

    test_missing_files_are_said_in_words = DatasetContract.test_missing_files_are_said_in_words

    @pytest.fixture(params=built_in("dataset"))
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param
