"""Generated documentation is what the code would generate now."""

from __future__ import annotations

import difflib
import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    spec = importlib.util.spec_from_file_location("generate_reference", DOCS / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wanted = module.pages()
    found = {str(path.relative_to(module.HERE)): path.read_text(encoding="utf-8") for path in module.HERE.rglob("*.md")}
    assert sorted(found) == sorted(wanted), "run: python docs/generate_reference.py"
    changes = [
        line
        for path, text in wanted.items()
        for line in difflib.unified_diff(found[path].splitlines(), text.splitlines(), path, path, lineterm="", n=0)
    ]
    assert not changes, "run: python docs/generate_reference.py\n" + "\n".join(changes)
