"""Faults of a third party's component at work name its distribution; faults of ours stay ordinary exceptions."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from wsl_toolkit import Backbone
from wsl_toolkit.data.loading import load_data
from wsl_toolkit.errors import ConfigError, DataError, DivergedError, PluginError
from wsl_toolkit.plugins.attribution import attributed, mark
from wsl_toolkit.plugins.registry import Owner, Registry
from wsl_toolkit.training.build import build_network

SOURCE = """
import sys
from typing import ClassVar
import attrs
from wsl_toolkit import Backbone, Dataset, Estimator, Kind, Setting

@attrs.frozen(kw_only=True)
class Foreign(Backbone):
    name: ClassVar[str] = "foreign"

    def build(self, input_shape, num_classes):
        raise KeyError("no such layer")

    def leave(self):
        sys.exit(3)


@attrs.frozen(kw_only=True)
class Method(Estimator):
    name: ClassVar[str] = "method"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC

    def loss(self, logits, candidates, state):
        return logits.sum(-1)


@attrs.frozen(kw_only=True)
class Files(Dataset):
    name: ClassVar[str] = "files"

    def load(self, data_dir):
        return "nonsense"
"""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    module = types.ModuleType("wsl_foreign")
    exec(compile(SOURCE, "/somewhere/wsl_foreign.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "wsl_foreign", module)
    registry = Registry()
    found = [("backbone", module.Foreign), ("estimator", module.Method), ("dataset", module.Files)]
    registry.add_all(found, Owner("wsl-foreign", "1.2", "foreign"))

    class Ours(Backbone):
        name = "ours"

        def build(self, input_shape: tuple[int, ...], num_classes: int) -> Any:
            raise AssertionError

    registry.add_all([("backbone", Ours)], Owner("wsl-toolkit", "0.1.0", "builtins"))
    return registry


def test_an_exception_from_a_plugins_code_names_distribution_version_place_and_fault(registry: Registry) -> None:
    with pytest.raises(PluginError) as caught, attributed(registry, "backbone", "foreign"):
        registry.get("backbone", "foreign")().build((1,), 3)
    for part in ("wsl-foreign 1.2", "backbone 'foreign'", "wsl_foreign.py:12", "KeyError: 'no such layer'"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_guilty_plugin_is_found_on_the_traceback_whatever_the_block_is_called(registry: Registry) -> None:
    with pytest.raises(PluginError, match=r"plugin wsl-foreign 1\.2 failed"), attributed(registry, "backbone", "ours"):
        registry.get("backbone", "foreign")().build((1,), 3)


def test_an_exception_with_no_plugin_code_on_its_way_says_only_who_was_at_work(registry: Registry) -> None:
    with (
        pytest.raises(PluginError, match=r"TypeError: oops, while backbone 'foreign' of plugin wsl-foreign 1\.2"),
        attributed(registry, "backbone", "foreign"),
    ):
        raise TypeError("oops")


def test_our_own_defect_stays_an_ordinary_exception(registry: Registry) -> None:
    with pytest.raises(ZeroDivisionError), attributed(registry, "backbone", "ours"):
        1 / 0  # noqa: B018


def test_ctrl_c_passes(registry: Registry) -> None:
    with pytest.raises(KeyboardInterrupt), attributed(registry, "backbone", "foreign"):
        raise KeyboardInterrupt


def test_a_plugin_that_calls_sys_exit_at_work_is_named_and_our_own_exit_passes(registry: Registry) -> None:
    with (
        pytest.raises(PluginError, match=r"wsl-foreign 1\.2 called sys\.exit\(3\)"),
        attributed(registry, "backbone", "foreign"),
    ):
        registry.get("backbone", "foreign")().leave()
    with pytest.raises(SystemExit), attributed(registry, "backbone", "foreign"):
        raise SystemExit(1)


def test_a_users_mistake_passes_unchanged(registry: Registry) -> None:
    mistake = ConfigError("lr must be > 0")
    with pytest.raises(ConfigError) as caught, attributed(registry, "backbone", "foreign"):
        raise mistake
    assert caught.value is mistake


def test_a_broken_contract_gains_the_owner_once(registry: Registry) -> None:
    with (
        pytest.raises(PluginError) as caught,
        attributed(registry, "backbone", "foreign"),
        attributed(registry, "backbone", "foreign"),
    ):
        raise PluginError("backbone foreign gave 3 logits for 4 classes")
    assert str(caught.value).count("wsl-foreign 1.2") == 1


def test_divergence_is_laid_at_the_estimators_door_only(registry: Registry) -> None:
    with pytest.raises(DivergedError, match=r"^the loss became nan$"), attributed(registry, "backbone", "foreign"):
        raise DivergedError("the loss became nan")


def test_a_network_of_torchs_parts_that_fails_is_the_backbones_fault_not_the_estimators(registry: Registry) -> None:
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    mark(error, "backbone")
    with (
        pytest.raises(
            PluginError, match=r"RuntimeError: mat1 .* while backbone 'foreign' .* wsl_foreign\.py:"
        ) as caught,
        attributed(registry, "backbone", "foreign"),
        attributed(registry, "estimator", "method"),
    ):
        raise error
    assert caught.value.__cause__ is error
    with (
        pytest.raises(RuntimeError),
        attributed(registry, "backbone", "ours"),
        attributed(registry, "estimator", "method"),
    ):
        raise error


@pytest.mark.parametrize("error_type", [PluginError, DivergedError])
def test_a_marked_error_gains_the_owner_of_its_own_role(registry: Registry, error_type: type[Exception]) -> None:
    error = error_type("the network returned logits of shape (3,)")
    mark(error, "backbone")
    with (
        pytest.raises(error_type, match=r"\(backbone 'foreign' is from plugin wsl-foreign 1\.2, wsl_foreign\.py:11\)"),
        attributed(registry, "backbone", "foreign"),
        attributed(registry, "estimator", "method"),
    ):
        raise error


def test_a_dataset_that_returns_nonsense_is_named_with_plugin_file_and_line(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(PluginError) as caught, attributed(registry, "dataset", "files"):
        load_data(registry.create("dataset", "files", {}), tmp_path)
    for part in ("dataset files: load returned str", "wsl_foreign.py:", "plugin wsl-foreign 1.2"):
        assert part in str(caught.value)
    with pytest.raises(DataError, match=r"wsl-foreign 1\.2, wsl_foreign\.py"), attributed(registry, "dataset", "files"):
        raise DataError("made: inputs are torch.int64")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("a network", "build returned str, not a torch.nn.Module"),
        (torch.nn.ReLU(), "without parameters to train"),
    ],
)
def test_a_backbone_that_builds_no_network_is_refused(made: Any, words: str) -> None:
    class Odd(Backbone):
        """An odd one."""

        name = "odd"

        def build(self, input_shape: tuple[int, ...], num_classes: int) -> Any:
            return made

    with pytest.raises(PluginError, match=f"backbone odd: .*{words}.*test_attribution") as caught:
        build_network(Odd(), (3,), 2)
    assert caught.value.wsl_role == "backbone"  # type: ignore[attr-defined]
