"""The first-party plugin for timm: a distribution of its own, installed by pip beside the toolkit's wheel, and used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plugin_environments import ROOT, Environment, build_wheels

PROJECT = ROOT / "plugins" / "wsl_timm"
RUN = ["run", "--backbone", "timm", "--backbone-model", "test_resnet", "--epochs", "1", "--batch-size", "128"]


@pytest.fixture(scope="module")
def installed(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    environment.install(*build_wheels(tmp_path_factory.mktemp("dist"), PROJECT))
    yield environment
    environment.uninstall("wsl-timm")


def test_it_is_listed_trains_is_exported_and_names_what_it_lacks(
    environment: Environment, installed: Environment, tmp_path: Path, fresh_database_in: Callable[[Path], None]
) -> None:
    fresh_database_in(tmp_path)
    listed, looked, trained, lacking = installed.session(
        ["plugins", "--json"],
        ["list", "backbones", "--json"],
        [*RUN, "--backbone-size", "32", "--json"],
        [*RUN, "--backbone-pretrained", "true"],
        cwd=tmp_path,
    )
    record = next(each for each in json.loads(listed.stdout) if each["distribution"] == "wsl-timm")
    assert record["components"] == {"backbone": ["timm"]}
    assert record["warnings"] == []
    assert json.loads(looked.stdout)["backbone"]["timm"]["distribution"] == "wsl-timm"
    assert trained.code == 0, trained.stderr
    assert json.loads(trained.stdout)["mean"]["test/accuracy"] > 0
    (exported,) = installed.session(
        ["export", json.loads(trained.stdout)["run_id"], "--out", "m.pt2", "--json"], cwd=tmp_path
    )
    assert exported.code == 0, exported.stderr
    assert json.loads(exported.stdout)["largest_difference"] < 1e-5
    assert lacking.code == 2
    assert "hf download timm/test_resnet" in lacking.stderr


def test_its_own_tests_pass(environment: Environment, installed: Environment, tmp_path: Path) -> None:
    done = installed.run(
        "python", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", "/dev/null",
        str(PROJECT / "tests"),
        cwd=tmp_path,
        PYTHONDONTWRITEBYTECODE="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "SKIPPED" not in done.stdout
