"""The README says what is so: numbers and versions are those of the code."""

from __future__ import annotations

import re

import pytest
import yaml
from doc_pages import ROOT, blocks

from wsl_toolkit.plugins.loading import OWN_DISTRIBUTION, load_plugins
from wsl_toolkit.version import __version__

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_two_commands_come_first() -> None:
    assert blocks("README.md")[0].text.split("\n") == ["make demo", "make test", ""]


@pytest.mark.parametrize(
    ("role", "text"), [("generator", "{} laws with exact probabilities"), ("estimator", "| methods | {}: ")]
)
def test_the_numbers_of_laws_and_methods_are_those_of_the_registry(role: str, text: str) -> None:
    registry = load_plugins().registry
    own = [n for n in registry.names(role) if registry.entry(role, n).owner.distribution == OWN_DISTRIBUTION]
    assert text.format(len(own)) in README


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == __version__
    assert {"message", "title", "authors", "license"} <= set(cited)
    (paper,) = cited["references"]
    assert paper["title"] in README
    assert [author["family-names"] for author in paper["authors"]] == ["Wu", "Lv", "Sugiyama"]


def test_the_readme_fits_what_it_sells_into_the_first_lines() -> None:
    """What it is, two commands and a figure before the first heading below the title."""
    start = README.partition("\n## ")[0]
    assert re.search(r"```sh\nmake demo\nmake test\n```", start)
    assert "![" in start
    assert len(start.splitlines()) <= 35
