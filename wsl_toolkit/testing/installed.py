"""Every component of one installed distribution under its contract; `wsl plugin check` runs this module with pytest.

Not named `test_…`, so that nobody collects it by accident.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wsl_toolkit.components import Backbone, Dataset
from wsl_toolkit.errors import WslError, one_line
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.testing import (
    BackboneContract,
    CallbackContract,
    DatasetContract,
    EstimatorContract,
    GeneratorContract,
    MetricContract,
    OptimizerContract,
    SchedulerContract,
    TransformContract,
)
from wsl_toolkit.testing.common import not_applicable
from wsl_toolkit.testing.declared import made_as_declared

IMAGE, TABLE = (3, 32, 32), (20,)
"""Examples' shapes that a network is tried with, unless its class declares others."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each contract the components of its role that no contract class of the project's own covers."""
    role = getattr(metafunc.cls, "role", None)
    if role is None:
        return
    config = metafunc.config
    distribution, plugin = config.getoption("--wsl-distribution"), config.getoption("--wsl-plugin")
    covered = set(config.getoption("--wsl-covered") or ())
    classes = [
        entry.cls
        for entry in load_plugins().registry.entries()
        if entry.owner.distribution == distribution
        and plugin in (None, entry.owner.plugin)
        and entry.cls.role == role
        and f"{role} {entry.cls.name}" not in covered
    ]
    classes.sort(key=lambda cls: cls.name)
    metafunc.parametrize("component", classes, ids=[cls.name for cls in classes], indirect=True)


@pytest.fixture
def component(request: pytest.FixtureRequest) -> Any:
    """The component as its class declares it, or as it comes; what it cannot be tried with is told to be so."""
    wants_defaults = request.function.__name__ == GeneratorContract.test_parameters_have_defaults.__name__
    made = made_as_declared(request.param, request.instance, needs_defaults=wants_defaults)
    if request.cls.role == "backbone" and "input_shapes" not in request.param.contract:
        request.instance.input_shapes = (IMAGE,) if why_not(made, IMAGE) is None or why_not(made, TABLE) else (TABLE,)
    if request.cls.role == "dataset" and "contract_data_dir" in request.fixturenames:
        _require_its_data(made, request.getfixturevalue("contract_data_dir"), request.getfixturevalue("tmp_path"))
    return made


def why_not(backbone: Backbone, shape: tuple[int, ...]) -> str | None:
    """Return why a network does not take inputs of a shape, or None."""
    import torch

    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            backbone.build(shape, 5).eval()(torch.zeros(2, *shape))
    except Exception as error:
        return one_line(error)
    return None


def _require_its_data(dataset: Dataset, data_dir: Path, empty: Path) -> None:
    """Skip what needs the data where it is not there: where an empty folder would be told of in the same words."""
    said = []
    for folder in (data_dir, empty / "none"):
        try:
            dataset.load(folder)
        except WslError as error:
            said.append(str(error).replace(str(folder), "…"))
        except Exception:
            return  # the checks themselves say what is wrong
        else:
            return
    if said[0] == said[1]:
        not_applicable(f"its data is not here: {said[0]}")


class TestGenerator(GeneratorContract):
    """Every generator."""

    role = "generator"


class TestEstimator(EstimatorContract):
    """Every estimator."""

    role = "estimator"


class TestBackbone(BackboneContract):
    """Every backbone."""

    role = "backbone"

    def test_images_are_taken(self, component: Backbone) -> None:
        """Or refused: then it is a network for tables."""
        if reason := why_not(component, IMAGE):
            not_applicable(f"it takes no inputs of shape {IMAGE}: {reason}")

    def test_tables_are_taken(self, component: Backbone) -> None:
        """Or refused: then it is a network for images."""
        if reason := why_not(component, TABLE):
            not_applicable(f"it takes no inputs of shape {TABLE}: {reason}")


class TestDataset(DatasetContract):
    """Every dataset."""

    role = "dataset"


class TestCallback(CallbackContract):
    """Every callback."""

    role = "callback"


class TestMetric(MetricContract):
    """Every metric."""

    role = "metric"


class TestOptimizer(OptimizerContract):
    """Every optimizer."""

    role = "optimizer"


class TestScheduler(SchedulerContract):
    """Every scheduler."""

    role = "scheduler"


class TestTransform(TransformContract):
    """Every transform."""

    role = "transform"
