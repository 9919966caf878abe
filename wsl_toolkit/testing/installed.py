"""Every component of one installed distribution under its contract; `wsl plugin check` runs this module with pytest.

Not named `test_…`, so that nobody collects it by accident.
"""

from __future__ import annotations

from typing import Any

import pytest

from wsl_toolkit.parameters import parameters_of
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.testing import BackboneContract, DatasetContract, EstimatorContract, GeneratorContract
from wsl_toolkit.testing.common import not_applicable


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each contract the components of its role."""
    role = getattr(metafunc.cls, "role", None)
    if role is None:
        return
    distribution = metafunc.config.getoption("--wsl-distribution")
    entries = [e for e in load_plugins().registry.entries() if e.owner.distribution == distribution]
    classes = sorted((e.cls for e in entries if e.cls.role == role), key=lambda cls: cls.name)
    metafunc.parametrize("component", classes, ids=[cls.name for cls in classes], indirect=True)


@pytest.fixture
def component(request: pytest.FixtureRequest) -> Any:
    """The component as it comes, with its defaults; a reader of users' files needs one of theirs."""
    required = [parameter.name for parameter in parameters_of(request.param).values() if parameter.required]
    if required and request.cls.role == "dataset":
        not_applicable(f"it has no default for {', '.join(required)}: test it with a file of your own")
    try:
        return request.param()
    except TypeError as error:
        pytest.fail(f"it cannot be made with its defaults: {error}", pytrace=False)


class TestGenerator(GeneratorContract):
    """Every generator."""

    role = "generator"


class TestEstimator(EstimatorContract):
    """Every estimator."""

    role = "estimator"


class TestBackbone(BackboneContract):
    """Every backbone."""

    role = "backbone"


class TestDataset(DatasetContract):
    """Every dataset."""

    role = "dataset"
