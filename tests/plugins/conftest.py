"""Environments with really installed plugins, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from broken_plugins import BROKEN
from plugin_environments import ROOT, Environment, build_wheels, make_environment, tiny_wheel

ENVIRONMENTS = {"environment", "broken_environment"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of plugins that pip really installs are system tests, and share their environments in one process."""
    for item in items:
        if ENVIRONMENTS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.system)
            item.add_marker(pytest.mark.xdist_group("pip"))


@pytest.fixture(scope="session")
def toolkit_wheel(shared_by_workers: Callable[..., Path]) -> Path:
    """The toolkit's own wheel."""
    (wheel,) = shared_by_workers("toolkit-wheel", lambda folder: build_wheels(folder, ROOT)).glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, toolkit_wheel: Path) -> Environment:
    """The toolkit installed from its wheel; tests install their plugins and take them away again."""
    return make_environment(tmp_path_factory.mktemp("environment") / "venv", toolkit_wheel)


@pytest.fixture(scope="session")
def broken_environment(tmp_path_factory: pytest.TempPathFactory, toolkit_wheel: Path) -> Environment:
    """The toolkit, one sound plugin, and a broken plugin of every kind, all installed."""
    wheels = tmp_path_factory.mktemp("broken")
    made = [tiny_wheel(wheels, name, plugin.source, entry_point=plugin.entry_point) for name, plugin in BROKEN.items()]
    return make_environment(tmp_path_factory.mktemp("broken-environment") / "venv", toolkit_wheel, *made)
