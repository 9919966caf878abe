"""A plugin that pip installs, edits, upgrades and uninstalls while a study has results of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli_w
from plugin_environments import Environment, Outcome

from tests.changing_plugin import PLUGIN, SOURCE

STUDY = {
    "name": "bent",
    "trials": 2,
    "training": {"epochs": 1, "batch_size": 256},
    "settings": [{"dataset": "digits", "generator": "mcl-skewed", "backbone": "straight"}],
    "methods": ["bent", "cc"],
}
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "wsl-bent"
version = "{version}"

[project.entry-points.wsl_toolkit]
bent = "wsl_bent"

[tool.setuptools]
packages = ["wsl_bent"]
"""
RUN = ["study", "run", "bent.toml", "--executor", "inline"]


def write(project: Path, version: str, source: str) -> None:
    package = project / "wsl_bent"
    package.mkdir(parents=True, exist_ok=True)
    (project / "pyproject.toml").write_text(PROJECT.format(version=version))
    (package / "__init__.py").write_text(PLUGIN)
    (package / "scales.py").write_text("SCALE = 1.0\n")
    (package / "parts.py").write_text(source)


@pytest.mark.system
def test_an_editable_plugin_is_edited_upgraded_by_a_wheel_and_uninstalled(
    environment: Environment, tmp_path: Path
) -> None:
    project, cwd = tmp_path / "project", tmp_path / "work"
    cwd.mkdir()
    (cwd / "bent.toml").write_text(tomli_w.dumps(STUDY))
    pip = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")

    def wsl(*commands: list[str]) -> list[Outcome]:
        found = environment.session(*commands, cwd=cwd)
        for done in found:
            assert done.code == 0, done.stderr
        return found

    try:
        write(project, "1.0", SOURCE)
        environment.pip(*pip, "-e", str(project))
        wsl(RUN)
        write(project, "1.0", SOURCE.replace("return SCALE", "# the same\n        return SCALE"))
        (same,) = wsl([*RUN, "--dry-run"])
        assert "4 runs kept, 0 runs to be computed" in same.stdout
        write(project, "1.0", SOURCE.replace("return SCALE *", "return 0 *"))
        plan, done = wsl([*RUN, "--dry-run"], RUN)
        # The other method's cell has the plugin's network, whose module is the same file.
        assert "4 results were made by other code than is installed; computed anew" in plan.stdout
        assert "estimator bent: wsl-bent 1.0 (source " in done.stderr
        assert "estimator cc" not in done.stderr
        environment.uninstall("wsl-bent")

        write(project, "1.1", SOURCE.replace("return SCALE *", "return 0 *"))
        environment.pip(*pip, str(project))
        plan, _, report = wsl([*RUN, "--dry-run"], RUN, ["report", "bent", "--json"])
        assert "→ wsl-bent 1.1 (source " in plan.stdout
        before = json.loads(report.stdout)
        assert before["other_code"]["results"] == 0
        environment.uninstall("wsl-bent")

        (report,) = wsl(["report", "bent", "--json"])
        after = json.loads(report.stdout)
        assert after["cells"] == before["cells"]
        assert after["other_code"]["results"] == 4
        (refused,) = environment.session(["study", "resume", "bent"], cwd=cwd)
        assert refused.code == 2
        assert 'pip install "wsl-bent==1.1"' in refused.stderr
    finally:
        environment.pip("uninstall", "--quiet", "--yes", "wsl-bent")


@pytest.mark.system
def test_the_toolkit_from_a_wheel_is_known_by_its_version(environment: Environment, tmp_path: Path) -> None:
    script = (
        "from wsl_toolkit.plugins.code_identity import code_of\n"
        "from wsl_toolkit.plugins.loading import load_plugins\n"
        "from wsl_toolkit import __version__\n"
        "found = code_of(load_plugins().registry, [('estimator', 'ppl')])\n"
        "assert set(found.values()) == {f'wsl-toolkit {__version__}'}, found\n"
    )
    done = environment.run("python", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
