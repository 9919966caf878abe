"""Every picture of the documentation has the command above it that draws it, and scripts that know how to make it."""

from __future__ import annotations

import re

from doc_pages import ROOT

from tests.docs_script import docs_script

PAGE = (ROOT / "docs" / "pictures.md").read_text(encoding="utf-8")


def test_every_drawn_picture_stands_below_the_command_that_draws_it() -> None:
    drawn, _, photographed = PAGE.partition("## In the browser")
    known = [name for _, names in docs_script("generate_pictures").shown() for name in names]
    assert known == re.findall(r"\(images/([\w.-]+)\)", drawn)
    assert re.findall(r"\(images/([\w.-]+)\)", photographed)


def test_every_photographed_picture_is_one_that_the_script_takes() -> None:
    source = (ROOT / "docs" / "take_screenshots.py").read_text(encoding="utf-8")
    for name in re.findall(r"\(images/([\w.-]+)\)", PAGE.partition("## In the browser")[2]):
        assert f'"{name}"' in source, name


def test_pictures_have_words_for_those_who_cannot_see_them() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert len(words) > 10, f"{page.name}: {target}"
