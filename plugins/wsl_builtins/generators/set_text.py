"""Sets of classes as text: '0 1 5-9'; several separated by ';' or new lines, blocks of a partition by '|'."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from wsl_toolkit.errors import ConfigError

RANGE = re.compile(r"(\d+)(?:-(\d+))?")
MOST_DIGITS = 6
"""A class of a million or more is a mistake, and a range up to it would fill the memory."""


def read_text(text: str, what: str) -> str:
    """Return the text itself, or the contents of the file that it names with '@file'."""
    if not text.startswith("@"):
        return text
    path = Path(text[1:])
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what}: cannot read {path} ({type(error).__name__})") from None


def parse_classes(text: str, what: str) -> tuple[int, ...]:
    """Read '0 1 5-9' (or with commas) as classes in order; a class named twice is an error."""
    classes: list[int] = []
    for word in text.replace(",", " ").split():
        match = RANGE.fullmatch(word)
        if not match:
            raise ConfigError(f"{what}: {word!r} is neither a class such as '3' nor a range such as '3-5'")
        if max(len(match[1]), len(match[2] or "")) > MOST_DIGITS:
            raise ConfigError(f"{what}: {word[:40]!r} names a class of more than {MOST_DIGITS} digits")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError(f"{what}: range {word!r} ends before it begins")
        classes.extend(range(first, last + 1))
    if not classes:
        raise ConfigError(f"{what}: {text.strip()!r} holds no classes")
    in_order = sorted(classes)
    twice = next((c for c, following in itertools.pairwise(in_order) if c == following), None)
    if twice is not None:
        raise ConfigError(f"{what}: class {twice} is named twice in {text.strip()!r}")
    return tuple(in_order)


def parse_lines(text: str) -> list[str]:
    """Split at ';' and new lines; empty lines and '#' comments do not count."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    parts = (part.strip() for line in lines for part in line.split(";"))
    return [part for part in parts if part]


def parse_blocks(line: str, what: str) -> list[tuple[int, ...]]:
    """Read '0 1|2-4|5' as blocks; a single one is refused, because it would be the full set."""
    blocks = [parse_classes(block, what) for block in line.split("|")]
    if len(blocks) < 2:
        raise ConfigError(f"{what}: {line!r} has a single block, which would be the full set; split it by |")
    return blocks


def check_blocks(blocks: list[tuple[int, ...]], num_classes: int, what: str) -> None:
    """Refuse blocks that are no partition of the classes."""
    if sorted(c for block in blocks for c in block) != list(range(num_classes)):
        shown = "|".join(" ".join(map(str, block)) for block in blocks)
        raise ConfigError(f"{what}: {shown!r} does not hold each class of 0 to {num_classes - 1} exactly once")


def check_weights(weights: tuple[float, ...] | None, count: int, what: str) -> tuple[float, ...]:
    """Return one relative weight for each of `count` things, equal ones if none are given."""
    if weights is None:
        return (1.0,) * count
    if len(weights) != count:
        raise ConfigError(f"{what}: {len(weights)} weights were given for {count}")
    if sum(weights) <= 0:
        raise ConfigError(f"{what}: at least one weight must be positive")
    return weights
