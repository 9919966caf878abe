"""docs/reliability.md names a test for each promise: all of them exist, and the long ones are called long."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def named_tests() -> list[tuple[str, str, bool]]:
    """Every test on the page: its file, its name, whether it is said to be long; `…` stands for the file before."""
    found = []
    last = ""
    for file, name, long in re.findall(r"`([\w/.…]+)::(test_\w+)`( \(long\))?", PAGE):
        last = last if file == "…" else file
        found.append((last if "/" in last else f"tests/faults/{last}", name, bool(long)))
    return found


@functools.cache
def functions(path: Path) -> dict[str, str]:
    """The functions of a test file with their decorators."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize(("file", "name", "is_long"), named_tests())
def test_every_test_that_the_page_names_exists(file: str, name: str, is_long: bool) -> None:
    known = functions(ROOT / file)
    assert name in known
    assert ("mark.long" in known[name]) == is_long


def test_every_row_of_the_page_names_a_test() -> None:
    rows = re.findall(r"^\|(.+)\|$", PAGE.partition("## What was measured")[0], re.MULTILINE)
    promises = [row for row in rows if not re.fullmatch(r"[-|\s]+", row) and not row.strip().startswith("promise")]
    assert len(promises) > 30
    assert [row for row in promises if "::test_" not in row] == []


def test_every_long_test_of_faults_is_on_the_page() -> None:
    here = {
        name
        for path in (ROOT / "tests" / "faults").glob("test_*.py")
        for name, marks in functions(path).items()
        if name.startswith("test_") and "mark.long" in marks
    }
    assert here == {name for _, name, is_long in named_tests() if is_long}
