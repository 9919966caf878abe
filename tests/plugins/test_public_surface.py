"""What plugins rely on changes only with a line in the changelog, and the pages that describe it are current."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs_script import docs_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return docs_script("generate_plugin_pages")


def test_the_generated_pages_are_current(generator: ModuleType) -> None:
    stale = [path.name for path, text in generator.pages().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"{stale} changed: run `python docs/generate_plugin_pages.py` and see what the changelog needs"


def test_the_changelog_names_the_public_surface_as_it_is(generator: ModuleType) -> None:
    wanted = generator.surface_id(generator.surface())
    changelog = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    assert wanted in changelog, (
        f"the public surface changed: add a line to CHANGELOG.md that says how and names it ({wanted!r}); "
        "an addition raises API_VERSION's minor number once it is released, anything that can break a plugin the major"
    )


def test_a_changed_signature_changes_the_surface(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from wsl_toolkit import Estimator

    before = generator.surface_id(generator.surface())
    monkeypatch.setattr(Estimator, "loss", lambda self, logits, candidates: None)
    assert generator.surface_id(generator.surface()) != before


@pytest.fixture(scope="module")
def public(generator: ModuleType) -> set[str]:
    return set(generator.surface().replace("class ", "").replace("(", " ").replace(":", " ").split())


def sources() -> list[Path]:
    return sorted([*(ROOT / "plugins").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_built_ins_and_examples_use_the_public_surface_alone(public: set[str], path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wsl_toolkit"):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            assert names <= public, f"not public: {sorted(names - public)}"


def test_attributes_that_functions_set_are_part_of_the_surface(generator: ModuleType) -> None:
    class Public:
        def __init__(self) -> None:
            self.declared = 1
            self.shown, self._hidden = 1, 2

        def fit(self) -> None:
            self.fitted_: float = 1.0

    assert generator._set_on_instances(Public) == ["declared", "fitted_", "shown"]
    surface = generator.surface().split("class ")
    (extended,) = [part for part in surface if part.startswith("wsl_toolkit.networks.Extended(")]
    for name in ("network", "second", "decay", "needs"):
        assert f"    attribute {name}\n" in extended, name
