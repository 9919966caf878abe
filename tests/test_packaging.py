"""The wheel: what is in it, and that it works where nothing but the dependencies is installed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugins.plugin_environments import ROOT, build_wheels, make_environment


@pytest.fixture(scope="module")
def wheel(shared_by_workers: Callable[..., Path]) -> Path:
    (built,) = shared_by_workers("toolkit-wheel", lambda folder: build_wheels(folder, ROOT)).glob("*.whl")
    return built


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"wsl_toolkit", "wsl_builtins", "wsl_methods"}
    assert "wsl_toolkit/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "plugins/"))]


@pytest.mark.system
@pytest.mark.xdist_group("pip")
def test_an_installed_wheel_gives_a_working_command(wheel: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "venv", wheel)
    run = ("wsl", "run", "--estimator", "ppl", "--generator", "mcl-skewed", "--epochs", "2")
    done = environment.run(*run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    where = "import wsl_toolkit, wsl_builtins; print(wsl_toolkit.__file__, wsl_builtins.__file__)"
    assert str(ROOT) not in environment.run("python", "-c", where, cwd=tmp_path).stdout
