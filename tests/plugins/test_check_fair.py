"""`wsl plugin check` tries a component as its project or its class says; what cannot be tried is not applicable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from wsl_toolkit.cli import main

PLUGIN = '''
from typing import Any, ClassVar

import attrs
from wsl_toolkit import Backbone, Data, Dataset, Generator, Setting, hookimpl, param
from wsl_toolkit.errors import ConfigError, DataError

WSL_API = "1.0"


@attrs.frozen(kw_only=True)
class Rare(Generator):
    """One wrong class beside the true one, as often as it is told."""

    name: ClassVar[str] = "rare"
    setting: ClassVar[Setting] = Setting.GENERAL
    contract: ClassVar[dict[str, Any]] = {"parameters": {"rate": 0.5}, "many_classes": 6}
    rate: float = param(help="how often", gt=0, le=1)

    def draw(self, x, y, num_classes, rng):
        import torch

        mask = torch.nn.functional.one_hot(y, num_classes).bool()
        joins = torch.rand(len(y), generator=rng) < self.rate
        mask[joins, ((y + 1) % num_classes)[joins]] = True
        return mask


@attrs.frozen(kw_only=True)
class Covered(Rare):
    """The same, held to a contract by the project's own tests."""

    name: ClassVar[str] = "covered"
    contract: ClassVar[dict[str, Any]] = {}
    rate: float = param(0.5, help="how often", gt=0, le=1)


@attrs.frozen(kw_only=True)
class Rows(Backbone):
    """A network for tables."""

    name: ClassVar[str] = "rows"

    def build(self, input_shape, num_classes):
        from torch import nn

        if len(input_shape) != 1:
            raise ConfigError("rows takes tables, not images")
        return nn.Linear(input_shape[0], num_classes)


@attrs.frozen(kw_only=True)
class Far(Dataset):
    """Data that is somewhere else."""

    name: ClassVar[str] = "far"

    def load(self, data_dir):
        if not (data_dir / "far.bin").exists():
            raise DataError(f"there is no far.bin in {data_dir}: download it")
        raise AssertionError


@hookimpl
def wsl_register_generators():
    return [Rare, Covered]


@hookimpl
def wsl_register_backbones():
    return [Rows]


@hookimpl
def wsl_register_datasets():
    return [Far]
'''

OWN_TEST = """
from wsl_fair import Covered
from wsl_toolkit.testing import GeneratorContract


class TestCovered(GeneratorContract):
    component = Covered(rate=0.25)
    num_classes = 3
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> dict[str, Any]:
    root: Path = tmp_path_factory.mktemp("fair")
    points = '[project.entry-points.wsl_toolkit]\nfair = "wsl_fair"\n'
    (root / "pyproject.toml").write_text(f'[project]\nname = "wsl-fair"\nversion = "1.0"\n{points}', encoding="utf-8")
    (root / "wsl_fair.py").write_text(PLUGIN, encoding="utf-8")
    (root / "tests").mkdir()
    (root / "tests" / "test_own.py").write_text(OWN_TEST, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.executable", str(warm_python))
        result = CliRunner().invoke(main, ["plugin", "check", str(root), "--json"])
    found: dict[str, Any] = json.loads(result.stdout)
    return {**found, "code": result.exit_code}


def of(checked: dict[str, Any], component: str) -> dict[str, dict[str, Any]]:
    return {
        check["name"].partition("[")[0]: check
        for check in checked["checks"]
        if check["kind"] == "contract" and f"[{component}]" in check["name"]
    }


def test_all_of_it_passes(checked: dict[str, Any]) -> None:
    failed = [check for check in checked["checks"] if check["outcome"] == "failed"]
    assert not failed
    assert checked["code"] == 0


def test_a_component_is_made_with_the_parameters_that_its_class_declares(checked: dict[str, Any]) -> None:
    rare = of(checked, "rare")
    assert rare["test_the_same_seed_gives_the_same_sets"]["outcome"] == "passed"
    assert rare["test_parameters_have_defaults"]["why"] == "its class declares parameters to try it with"


def test_nothing_is_called_proven_where_nothing_was_proven(checked: dict[str, Any]) -> None:
    proof = of(checked, "rare")["test_the_declared_setting_is_proven_by_enumeration"]
    assert proof["outcome"] == "not applicable"
    assert proof["why"] == "it gives no probabilities, and general asks for no proof"


def test_the_projects_own_contract_class_counts(checked: dict[str, Any]) -> None:
    assert not of(checked, "covered")
    own = [check for check in checked["checks"] if check["component"] == "generator covered"]
    assert len(own) > 8
    assert all(check["kind"] == "own test" for check in own)


def test_a_network_for_tables_is_tried_with_tables(checked: dict[str, Any]) -> None:
    rows = of(checked, "rows")
    assert rows["test_inputs_become_one_logit_a_class"]["outcome"] == "passed"
    assert rows["test_tables_are_taken"]["outcome"] == "passed"
    assert rows["test_images_are_taken"]["outcome"] == "not applicable"
    assert "rows takes tables, not images" in rows["test_images_are_taken"]["why"]


def test_a_dataset_without_its_data_is_not_applicable(checked: dict[str, Any]) -> None:
    far = of(checked, "far")
    assert far["test_it_loads_sound_data"]["outcome"] == "not applicable"
    assert "its data is not here: there is no far.bin" in far["test_it_loads_sound_data"]["why"]
    assert far["test_missing_files_are_said_in_words"]["outcome"] == "passed"


@pytest.mark.system
@pytest.mark.parametrize(("name", "has", "has_not"), [("builtins", "ppl", "pico"), ("methods", "pico", "ppl")])
def test_our_own_plugins_pass_each_by_its_name(name: str, has: str, has_not: str) -> None:
    result = CliRunner().invoke(main, ["plugin", "check", name, "--json"])
    found: dict[str, Any] = json.loads(result.stdout)
    assert [check for check in found["checks"] if check["outcome"] == "failed"] == []
    assert result.exit_code == 0
    assert found["counts"]["passed"] > 100
    assert of(found, has)
    assert not of(found, has_not)
