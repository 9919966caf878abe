"""The notebooks are text, and their code is typed as strictly as a user's own project may ask; the build runs them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.md"))


def code(notebook: Path) -> str:
    """Return a notebook's cells as one script."""
    return "\n\n".join(re.findall(r"```\{code-cell\} ipython3\n(.*?)```", notebook.read_text(encoding="utf-8"), re.S))


def test_there_are_three_and_each_is_python() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["experiment", "own-loop", "study"]
    for path in NOTEBOOKS:
        ast.parse(code(path), path.name)
        assert path.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb\n")


@pytest.mark.system
def test_their_code_passes_mypy_s_strict_mode_in_a_project_of_a_user_s_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.mypy]\nstrict = true\n")
    for path in NOTEBOOKS:
        (tmp_path / f"{path.stem.replace('-', '_')}.py").write_text(code(path))
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
