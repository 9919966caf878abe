"""A picture that is there already is somebody's work."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from wsl_toolkit.cli import main

COMMANDS = {
    "inspect": ["inspect", "mcl-skewed", "--classes", "3"],
    "inspect --all": ["inspect", "--all", "--classes", "3"],
    "verify": ["verify", "--classes", "3", "--estimator", "cc", "--generator", "cl"],
    "verify --monte-carlo": ["verify", "--monte-carlo", "--estimator", "cc", "--generator", "cl"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_existing_figure_is_refused_before_any_work(name: str, tmp_path: Path, monkeypatch) -> None:
    def work(*args: object, **kwargs: object) -> None:
        raise AssertionError("it worked before it refused")

    for place in ("generator_profile.profile_generator", "survey.survey", "verification.verify"):
        monkeypatch.setattr(f"wsl_toolkit.theory.{place}", work)
    monkeypatch.setattr("wsl_toolkit.cli.verify_monte_carlo.run", work)
    figure = tmp_path / "mine.png"
    figure.write_text("mine")
    result = CliRunner().invoke(main, [*COMMANDS[name], "--figure", str(figure)])
    assert result.exit_code == 2, result.output
    assert "exists already: --force replaces it" in " ".join(result.stderr.split())
    assert figure.read_text() == "mine"


@pytest.mark.parametrize("name", ["inspect", "verify"])
def test_force_replaces_a_figure(name: str, tmp_path: Path) -> None:
    figure = tmp_path / "mine.png"
    figure.write_text("mine")
    result = CliRunner().invoke(main, [*COMMANDS[name], "--figure", str(figure), "--force", "--json"])
    assert result.exit_code == 0, result.output
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["inspect", "inspect --all"])
def test_a_format_that_no_figure_has_is_refused_before_any_work(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [*COMMANDS[name], "--figure", str(tmp_path / "map.jpeg")])
    assert result.exit_code == 2
    assert "written as .png, .svg or .pdf" in " ".join(result.stderr.split())
