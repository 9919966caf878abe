"""The pages of the documentation and their code blocks; what is done with a block that is not simply run."""

from __future__ import annotations

import functools
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).parents[2]
SHELLS = ("sh", "bash", "console")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w{}-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
_FOR = re.compile(r"for (\w+) in (\S+)")
_SEPARATORS = frozenset({";", "&&", "||", "|", "&", "do", "done", "then", "fi"})
_REDIRECTIONS = frozenset({">", ">>", "<", "2>", "2>&1"})

HOW = ("parsed", "long", "served", "elsewhere")
"""What may be done with a block that is not simply run: see blocks.toml, which lists them all."""


@attrs.frozen
class Exception_:
    """A block that is not simply run."""

    page: str
    begins: str
    how: str
    why: str
    says: str = ""
    test: str = ""


@attrs.frozen
class Step:
    """One thing to do in a shell, what its output must hold, and how it must end."""

    command: str
    shown: tuple[str, ...] = ()
    exit_code: int = 0

    def missing(self, actual: str) -> list[str]:
        """Return the shown lines that the output lacks; '…' stands for anything, and spaces for any space.

        A table's frame is as wide as its longest entry, and so as long as a training took: it is not compared.
        """
        whole = " ".join(actual.split())
        missing = []
        for line in self.shown:
            parts = [re.escape(" ".join(part.split())) for part in line.strip("┌┬─┐├┼┤└┴┘").split("…")]
            if any(parts) and not re.search(".*?".join(parts), whole):
                missing.append(line)
        return missing


@attrs.frozen
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, as an editor opens it."""
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that the block is, where its first line says so."""
        found = re.match(r"# file: (\S+)\n", self.text)
        return found[1] if found else None

    def steps(self) -> list[Step]:
        """Return what a shell block does: one step, or in a console one for each prompt."""
        if self.language != "console":
            return [Step(self.text)]
        found: list[tuple[list[str], list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append(([line[2:]], []))
            elif line.startswith("> ") or (found and not found[-1][1] and found[-1][0][-1].endswith("\\")):
                found[-1][0].append(line.removeprefix("> "))
            elif found:
                found[-1][1].append(line)
        return [
            Step("\n".join(command), tuple(shown), 2 if shown and shown[0].startswith("Error:") else 0)
            for command, shown in found
        ]

    def commands(self) -> Iterator[list[str]]:
        """Yield the words of every simple command; a loop's variable has its first value."""
        for step in self.steps():
            values = dict(_FOR.findall(step.command))
            text = step.command.replace("\\\n", " ")
            for name, value in values.items():
                text = re.sub(rf"\$\{{?{name}\b\}}?", value.rstrip(";"), text)
            for line in text.splitlines():
                yield from _simple_commands(line)


def _simple_commands(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in _SEPARATORS:
            if words:
                yield words
            words = []
        else:
            words.append(word)


def without_redirection(words: list[str]) -> list[str]:
    """Return a command's words up to where its output goes."""
    for place, word in enumerate(words):
        if word in _REDIRECTIONS:
            return words[:place]
    return words


def pages() -> list[str]:
    """Return every page that people read, from the root of the checkout."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found if "_build" not in path.parts]


def blocks(page: str) -> list[Block]:
    """Return a page's fenced blocks, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["language"], found["text"])
        for found in _FENCE.finditer(text)
    ]


def exceptions() -> list[Exception_]:
    """Return every block that is not simply run, with its reason."""
    return [Exception_(**value) for value in _listed()["block"]]


def data_of(page: str, *, long: bool = False) -> tuple[str, ...]:
    """Return the real data that a page's blocks read, those that take long included or not."""
    listed = _listed()["data"]
    return (*listed.get(page, ()), *(listed["long"].get(page, ()) if long else ()))


@functools.cache
def _listed() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "blocks.toml").read_text(encoding="utf-8"))


def exception_of(block: Block) -> Exception_ | None:
    """Return what is said about a block, if anything is."""
    for found in exceptions():
        if found.page == block.page and (found.begins == "*" or block.text.startswith(found.begins)):
            return found
    return None
