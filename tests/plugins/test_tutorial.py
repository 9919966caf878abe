"""The tutorial is a story that works: every block is carried out in order, and every line shown appears."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import blocks
from plugin_environments import ROOT, Environment

PAGES = ROOT / "docs" / "plugin-authors"


def follow(page: Path, environment: Environment, folder: Path) -> list[tuple[str, str]]:
    """Carry out a page's blocks; return every command with its output."""
    done = []
    for block in blocks(page):
        if block.language != "console":
            assert block.write_into(folder), f"a block that nobody carries out:\n{block.text}"
            continue
        for command in block.commands():
            if command.line.startswith("cd "):
                folder = folder / command.line.removeprefix("cd ")
                continue
            # The only liberty: what is not on this machine's index is installed already.
            line = command.line.replace("pip install", "pip install --no-build-isolation --no-deps --no-index")
            ran = environment.run(*line.split(), cwd=folder)
            output = ran.stdout + ran.stderr
            assert ran.returncode == command.exit_code, f"{command.line}\n{output}"
            assert command.missing(output) == [], f"{command.line}\n{output}"
            done.append((command.line, output))
    return done


@pytest.mark.system
def test_the_tutorial_works_as_printed(environment: Environment, tmp_path: Path) -> None:
    """Among the system tests because it takes longer than all others here: it scaffolds, runs and compares for real."""
    try:
        done = follow(PAGES / "tutorial.md", environment, tmp_path)
    finally:
        environment.uninstall("wsl-set-brier")
    assert len(done) >= 8
    assert (tmp_path / "wsl-set-brier" / "wsl-runs" / "studies" / "set-brier-against-ppl" / "report").is_dir()


@pytest.mark.system
def test_the_page_on_contracts_works_as_printed(tmp_path: Path) -> None:
    for page in ("hooks/wsl_register_estimators.md", "contracts.md"):
        for block in blocks(PAGES / page):
            if block.language == "python":
                assert block.write_into(tmp_path), f"a block that nobody carries out:\n{block.text}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "39 passed, 12 skipped" in done.stdout, "three components, seventeen checks each"
    assert done.stdout.count("not applicable: ") == 4, "of four kinds, each three times"


def test_what_installing_a_plugin_means_is_said_where_people_look(environment: Environment, tmp_path: Path) -> None:
    from wsl_toolkit.plugins.scaffold import TEMPLATE

    (help_text,) = environment.session(["plugin", "--help"], cwd=tmp_path)
    pages = [help_text.stdout, (PAGES / "index.md").read_text(), (TEMPLATE / "README.md.jinja").read_text()]
    for text in pages:
        words = " ".join(text.split())
        assert "trusting" in words
        assert "runs with your rights" in words


@pytest.mark.parametrize("page", sorted(PAGES.rglob("*.md")), ids=lambda page: page.name)
def test_every_link_between_the_pages_leads_somewhere(page: Path) -> None:
    import re

    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
