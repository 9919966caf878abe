"""Every hook has a page with its exact signature and an example that loads and keeps its contract."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import blocks

from wsl_toolkit import hookspecs
from wsl_toolkit.components import ROLES, Component
from wsl_toolkit.plugins import loading
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

PAGES = Path(__file__).parents[2] / "docs" / "plugin-authors"
HOOKS = [name for name in vars(hookspecs) if name.startswith("wsl_")]


def load_examples(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> loading.Plugins:
    """Write a page's example modules and load the first as a plugin."""
    written = [block for block in blocks(page) if block.language == "python" and block.write_into(folder)]
    monkeypatch.syspath_prepend(str(folder))
    module = written[0].text.split()[2].removesuffix(".py")
    monkeypatch.delitem(sys.modules, module, raising=False)
    loaded = loading.load([EntryPoint(name="example", value=module, group=hookspecs.PROJECT)])
    assert loaded.records[0].failure is None, loaded.records[0].failure
    assert loaded.records[0].warnings == ()
    return loaded


def component_of(loaded: loading.Plugins, role: str) -> Any:
    (entry,) = loaded.registry.entries()
    assert issubclass(entry.cls, ROLES[role])
    return entry.cls()


def keeps(contract: type, component: Component, folder: Path) -> None:
    """Run every check of a contract."""
    for name in dir(contract):
        if name.startswith("test_"):
            check = getattr(contract(), name)
            extra = [p for p in inspect.signature(check).parameters if p != "component"]
            with contextlib.suppress(pytest.skip.Exception):  # one that is not applicable leaves no other out
                check(component, **dict.fromkeys(extra, folder))


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> loading.Plugins:
    """The example on the page of the hook that the test is named after."""
    page = PAGES / "hooks" / f"{request.function.__name__.removeprefix('test_')}.md"
    return load_examples(page, tmp_path, monkeypatch)


def test_wsl_register_generators(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(GeneratorContract, component_of(example, "generator"), tmp_path)


def test_wsl_register_estimators(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(EstimatorContract, component_of(example, "estimator"), tmp_path)


def test_wsl_register_backbones(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(BackboneContract, component_of(example, "backbone"), tmp_path)


def test_wsl_register_datasets(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(DatasetContract, component_of(example, "dataset"), tmp_path)


def test_wsl_register_transforms(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(TransformContract, component_of(example, "transform"), tmp_path)


def test_wsl_register_metrics(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(MetricContract, component_of(example, "metric"), tmp_path)


def test_wsl_register_optimizers(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(OptimizerContract, component_of(example, "optimizer"), tmp_path)


def test_wsl_register_schedulers(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(SchedulerContract, component_of(example, "scheduler"), tmp_path)


def test_wsl_register_callbacks(example: loading.Plugins, tmp_path: Path) -> None:
    keeps(CallbackContract, component_of(example, "callback"), tmp_path)


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_page_with_its_signature_and_a_test_of_its_name(hook: str) -> None:
    page = PAGES / "hooks" / f"{hook}.md"
    assert page.is_file(), f"{hook} has no page"
    function = getattr(hookspecs, hook)
    signature = f"def {hook}{str(inspect.signature(function)).replace(chr(39), '')}"
    text = page.read_text(encoding="utf-8")
    assert signature in text
    assert inspect.getdoc(function) in text
    assert f"test_{hook}" in globals(), f"{hook} has no test of its name"
    assert f"hooks/{hook}.md" in (PAGES / "index.md").read_text(encoding="utf-8")


def test_there_is_a_hook_for_every_role_and_nothing_else() -> None:
    assert sorted(HOOKS) == sorted(loading.HOOKS.values())


def test_an_estimator_that_needs_more_loads_and_keeps_its_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_examples(PAGES / "needs.md", tmp_path, monkeypatch)
    keeps(EstimatorContract, component_of(loaded, "estimator"), tmp_path)
    for module, name in (("my_head", "WithHead"), ("my_selection", "Trusting")):
        monkeypatch.delitem(sys.modules, module, raising=False)
        keeps(EstimatorContract, getattr(importlib.import_module(module), name)(), tmp_path)


def test_the_examples_of_the_page_on_the_order_keep_their_contracts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in blocks(PAGES / "order.md"):
        assert block.language == "text" or block.write_into(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for contract, module, name in (
        (GeneratorContract, "my_prepared", "DimExamples"),
        (EstimatorContract, "my_network", "Cooled"),
    ):
        monkeypatch.delitem(sys.modules, module, raising=False)
        keeps(contract, getattr(importlib.import_module(module), name)(), tmp_path)


def test_the_page_on_the_order_lists_the_types_of_parameters_and_every_size_of_a_contract() -> None:
    text = (PAGES / "order.md").read_text(encoding="utf-8")
    sizes = {
        name
        for contract in (BackboneContract, DatasetContract, EstimatorContract, GeneratorContract)
        for name, value in vars(contract).items()
        if not name.startswith("_") and not callable(value) and name != "component"
    }
    assert "many_classes" in sizes
    assert [name for name in sizes if f"`{name} = " not in text] == []
    for kind in ("int", "float", "bool", "str", "Path", "tuple[int, ...]"):
        assert f"`{kind}`" in text


def test_the_page_on_needs_lists_all_of_them() -> None:
    from wsl_toolkit.components import NEEDS

    text = (PAGES / "needs.md").read_text(encoding="utf-8")
    assert [need for need in NEEDS if f"| `{need}` |" not in text] == []
