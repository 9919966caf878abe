"""The page on architecture tells the truth: imports as they are, files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs_script import docs_script

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def test_the_table_of_imports_is_current() -> None:
    module = docs_script("generate_architecture")
    assert PAGE.read_text(encoding="utf-8") == module.page(module.imports()), "run python docs/generate_architecture.py"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", PAGE.read_text(encoding="utf-8")))))
def test_every_file_that_it_names_exists(name: str) -> None:
    assert (ROOT / "wsl_toolkit" / name).is_file() or (ROOT / name).is_file()


def test_every_function_that_it_names_beside_a_file_exists() -> None:
    pairs = re.findall(
        r"`([a-z_]+/[a-z_/]+\.py)`,? (?:\(or [^)]*\) )?`([A-Za-z_.]+)`", PAGE.read_text(encoding="utf-8")
    )
    assert len(pairs) > 12
    for file, name in pairs:
        source = (ROOT / "wsl_toolkit" / file).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"(def|class) {part}\b|^{part}\b", source, re.M), f"{file} has no {name}"
