"""Every link resolves: between pages, to headings, to pictures and files; external ones are at least well-formed."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from doc_pages import ROOT, pages

PAGES = [*pages(), "CHANGELOG.md", "examples/README.md"]
_CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.M | re.S)
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")


def prose(page: str) -> str:
    """Return a page without its code, in which brackets mean something else."""
    return _CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))


def links(page: str) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _CODE.sub(_inline, path.read_text(encoding="utf-8")), re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        place, number = slug, 0
        while place in found:
            number += 1
            place = f"{slug}-{number}"
        found.add(place)
    return found


def _inline(found: re.Match[str]) -> str:
    """Keep inline code, which headings may hold; drop fenced code, whose comments look like headings."""
    return "" if found[0].lstrip().startswith("```") else found[0].strip("`")


def is_external(target: str) -> bool:
    return bool(re.match(r"[a-z][a-z0-9+.-]*:", target))


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    broken = []
    for target in links(page):
        if is_external(target):
            continue
        file, _, anchor = urllib.parse.unquote(target).partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    assert not broken, f"{page}: {broken}"


def test_external_links_are_well_formed() -> None:
    """There is no network in a test: what can be checked is that they are addresses, and encrypted ones."""
    found = {(page, target) for page in PAGES for target in links(page) if is_external(target)}
    for page, target in sorted(found):
        parts = urllib.parse.urlsplit(target)
        local = parts.hostname in ("localhost", "127.0.0.1")
        assert parts.scheme == "mailto" or (parts.hostname and (parts.scheme == "https" or local)), f"{page}: {target}"


def test_every_page_can_be_reached() -> None:
    """A page that no table of contents names is one that nobody reads."""
    named: set[str] = set()
    for page in pages():
        path = ROOT / page
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(encoding="utf-8"), re.S):
            entries = [line.strip() for line in tree.splitlines() if line.strip() and not line.startswith(":")]
            named |= {str((path.parent / f"{entry}.md").resolve().relative_to(ROOT)) for entry in entries}
    assert set(pages()) - named == {"README.md", "CONTRIBUTING.md", "docs/index.md"}, "where reading begins"


def test_every_picture_is_used() -> None:
    used = {((ROOT / page).parent / target).resolve() for page in pages() for target in links(page)}
    pictures = set((ROOT / "docs").glob("images/*")) | set((ROOT / "docs").glob("reproduction/*.png"))
    assert {picture.name for picture in pictures if picture.resolve() not in used} == set()


class Html(HTMLParser):
    """The links and the anchors of a built page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None and (tag != "link" or "stylesheet" in str(attrs)):
                self.targets.append(value)
            elif name in ("id", "name") and value is not None:
                self.ids.add(value)


def parsed(path: Path) -> Html:
    html = Html()
    html.feed(path.read_text(encoding="utf-8"))
    return html


def broken_in(site: Path) -> Iterator[str]:
    """Yield every link of a built site that leads nowhere."""
    known = {path.resolve(): parsed(path) for path in site.rglob("*.html")}
    for path, html in known.items():
        for target in html.targets:
            if is_external(target) or target.startswith(("//", "data:")):
                continue
            file, _, anchor = urllib.parse.unquote(target).partition("#")
            there = (path.parent / file.partition("?")[0]).resolve() if file else path
            missing = not there.exists() or (anchor and there in known and anchor not in known[there].ids)
            if missing and target != "#":
                yield f"{path.relative_to(site.resolve())}: {target}"


@pytest.mark.system
def test_the_site_builds_without_a_warning_and_every_link_of_it_resolves(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(broken_in(tmp_path)) == []


def test_a_broken_link_of_a_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there">x</a><a href="b.html#gone">x</a><img src="no.png">')
    (tmp_path / "b.html").write_text('<h1 id="there">x</h1>')
    assert sorted(broken_in(tmp_path)) == ["a.html: b.html#gone", "a.html: no.png"]
