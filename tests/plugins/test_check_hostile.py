"""`wsl plugin check` on projects that want to write elsewhere, or that have nothing to check."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from wsl_toolkit.cli import main

POINTS = '[project.entry-points.wsl_toolkit]\nevil = "evil_plugin"\n'


def project(root: Path, text: str) -> Path:
    root.mkdir()
    (root / "pyproject.toml").write_text(text, encoding="utf-8")
    (root / "evil_plugin.py").write_text("")
    return root


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'[project]\nname = "../../x/evil"\n{POINTS}', "the project's name"),
        (f'[project]\nname = "evil\\nName: pip"\n{POINTS}', "the project's name"),
        (f'[project]\nname = "evil"\nversion = "1/../../x"\n{POINTS}', "the project's version"),
        (f"[project]\nname = 7\n{POINTS}", "the project's name"),
        (f'[project]\nname = "{"x" * 300}"\n{POINTS}', "the project's name"),
        (f'[project]\nname = "evil"\nversion = "{"1" * 300}"\n{POINTS}', "the project's version"),
        (f'[project]\nname = "evil"\n{POINTS}"a = b\\n[x" = "c"\n', "name of an entry point"),
        (f'[project]\nname = "evil"\n{POINTS}x = "os\\n[console_scripts]"\n', "entry point x"),
        ('project = "evil"\n', "declares no plugin"),
        ("a = " + "[" * 5000 + "]" * 5000, "cannot be read"),
    ],
)
def test_names_that_lead_elsewhere_are_refused_and_nothing_is_written(tmp_path, monkeypatch, text, words):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "deep" / "scratch"))
    (tmp_path / "deep" / "scratch").mkdir(parents=True)
    checkout = project(tmp_path / "project", text)
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(main, ["plugin", "check", str(checkout)])
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert "passed" not in result.output
    assert sorted(tmp_path.rglob("*")) == before


def test_a_plugin_without_components_has_not_passed(tmp_path, monkeypatch, warm_python):
    monkeypatch.setattr("sys.executable", str(warm_python))
    checkout = project(tmp_path / "project", f'[project]\nname = "empty"\nversion = "1.0"\n{POINTS}')
    code = "from wsl_toolkit import hookimpl\n\n\n@hookimpl\ndef wsl_register_estimators():\n    return []\n"
    (checkout / "evil_plugin.py").write_text(code)
    result = CliRunner().invoke(main, ["plugin", "check", str(checkout)])
    assert result.exit_code == 1, result.output
    assert "Nothing was checked" in result.output
    assert "passed" not in result.output
