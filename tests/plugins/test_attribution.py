"""Faults of a third party's component at work name its distribution; faults of ours stay ordinary exceptions."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from wsl_toolkit import Backbone
from wsl_toolkit.errors import ConfigError, DivergedError, PluginError
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.registry import Owner, Registry

SOURCE = """
import sys
from typing import ClassVar
import attrs
from wsl_toolkit import Backbone

@attrs.frozen(kw_only=True)
class Foreign(Backbone):
    name: ClassVar[str] = "foreign"

    def build(self, input_shape, num_classes):
        raise KeyError("no such layer")

    def leave(self):
        sys.exit(3)
"""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    module = types.ModuleType("wsl_foreign")
    exec(compile(SOURCE, "/somewhere/wsl_foreign.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "wsl_foreign", module)
    registry = Registry()
    registry.add_all([("backbone", module.Foreign)], Owner("wsl-foreign", "1.2", "foreign"))

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
