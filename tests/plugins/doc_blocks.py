"""The code blocks of a page, in order, and what they say about themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

_BLOCK = re.compile(r"^(?:<!-- exit: (?P<exit>\d+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_FILE = re.compile(r"# file: (\S+)\n")
_REPLACE = re.compile(r"# replace in: (\S+)\n(.+) -> (.+)\n")


@attrs.frozen(kw_only=True)
class Command:
    """A line after a prompt, the exit code it must have, and lines that its output must hold."""

    line: str
    exit_code: int
    output: list[str]

    def missing(self, actual: str) -> list[str]:
        """Return the shown lines that the actual output lacks, in whatever order; '…' stands for anything."""
        squeezed = [" ".join(line.split()) for line in actual.splitlines()]
        missing = []
        for shown in self.output:
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in shown.split("…"))
            if pattern.strip() and not any(re.search(pattern, line) for line in squeezed):
                missing.append(shown)
        return missing


@attrs.frozen(kw_only=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    exit_code: int

    def write_into(self, folder: Path) -> bool:
        """Carry out what the first line asks for: write a file, or replace text in one."""
        if found := _FILE.match(self.text):
            path = folder / found[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text[found.end() :])
            return True
        if found := _REPLACE.match(self.text):
            path = folder / found[1]
            old = path.read_text()
            assert found[2] in old, f"{found[1]} does not hold {found[2]!r}"
            path.write_text(old.replace(found[2], found[3]))
            return True
        return False

    def commands(self) -> list[Command]:
        """Return the commands of a console block."""
        lines: list[list[str]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                lines.append([line.removeprefix("$ ")])
            elif lines:
                lines[-1].append(line)
        return [Command(line=line, exit_code=self.exit_code, output=output) for line, *output in lines]


def blocks(page: Path) -> Iterator[Block]:
    """Yield a page's fenced blocks."""
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(language=found["language"], text=found["text"], exit_code=int(found["exit"] or 0))
