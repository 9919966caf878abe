"""Generated documentation is what the code would generate now."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs_script import docs_script

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def module() -> Any:
    """The script that writes the reference."""
    return docs_script("generate_reference")


def test_the_reference_is_current(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert module.is_current(json.loads(module.MATRIX.read_text())), "run: python docs/generate_reference.py"
    wanted = module.pages()
    found = {str(path.relative_to(module.HERE)): path.read_text(encoding="utf-8") for path in module.HERE.rglob("*.md")}
    assert sorted(found) == sorted(wanted), "run: python docs/generate_reference.py"
    changes = [
        line
        for path, text in wanted.items()
        for line in difflib.unified_diff(found[path].splitlines(), text.splitlines(), path, path, lineterm="", n=0)
    ]
    assert not changes, "run: python docs/generate_reference.py\n" + "\n".join(changes)


@pytest.mark.system
def test_what_the_reference_says_of_verify_is_what_verify_finds(module: Any) -> None:
    """Numbers may differ in their last digit between machines; verdicts may not."""
    kept, found = json.loads(module.MATRIX.read_text()), module.find_matrix()
    assert (kept["estimators"], kept["generators"]) == (found["estimators"], found["generators"])
    for before, now in zip(kept["cells"], found["cells"], strict=True):
        for key in ("bias", "standard_deviation"):
            assert before.pop(key) == pytest.approx(now.pop(key), abs=2e-3), (before, now)
        assert before == now, "run: python docs/generate_reference.py --verify"


def test_every_component_has_a_page_with_an_example(module: Any) -> None:
    for role, names in module.own_components().items():
        for name in names:
            text = (module.HERE / f"{role}s" / f"{name}.md").read_text(encoding="utf-8")
            assert "## Example\n\n```" in text, f"{role} {name}"
            if role in ("estimator", "generator"):
                assert "## What `wsl verify` finds" in text, f"{role} {name}"
