"""The machinery of fuzzing: random damage from a seed, and what may come of reading a damaged file."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import attrs

from wsl_toolkit.errors import WslError

SECONDS = 20
"""A parser that takes longer over a file of a few kilobytes hangs."""

WORDS = [
    b"nan",
    b"inf",
    b"-1",
    b"1e999",
    b"9" * 40,
    b"\x00",
    b"\xff\xfe",
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"'",
    b",",
    b";",
]
WORDS += [
    b"\n",
    b"\r\n",
    b"\t",
    b"=",
    b"#",
    b"..",
    b"/",
    b"true",
    b"none",
    "é€😀".encode(),
    b"<script>",
    b"name",
    b"[[[[",
]


@attrs.frozen(kw_only=True)
class Target:
    """A parser and sound files for it."""

    name: str
    suffix: str
    samples: tuple[bytes, ...]
    parse: Callable[[Path], Any]
    mutate: Callable[[random.Random], bytes]
    """A file that is whole, but wrong."""


def damage(dice: random.Random, content: bytes) -> bytes:
    """Return a file with one to five things wrong with it."""
    data = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 3, 5])):
        at = dice.randrange(len(data) + 1)
        kind = dice.randrange(7)
        if kind == 0 and data:  # a flipped bit
            data[at % len(data)] ^= 1 << dice.randrange(8)
        elif kind == 1:  # cut short
            del data[at:]
        elif kind == 2:  # a hole
            del data[at : at + dice.randrange(1, 40)]
        elif kind == 3:  # a surprising word
            data[at:at] = dice.choice(WORDS)
        elif kind == 4:  # noise
            data[at : at + 8] = dice.randbytes(dice.randrange(1, 9))
        elif kind == 5:  # something twice
            data[at:at] = data[at // 2 : at // 2 + dice.randrange(1, 60)]
        elif kind == 6 and data:  # a number that is far too large, or too small
            data[at % len(data) : at % len(data) + 4] = dice.choice([b"\xff\xff\xff\x7f", b"\xff" * 4, b"\x00" * 4])
    return bytes(data)


def try_case(target: Target, dice: random.Random, folder: Path) -> str:
    """Read one damaged file; return 'read' or 'refused', and let everything else surface."""
    path = folder / f"case{target.suffix}"
    path.write_bytes(target.mutate(dice) if dice.random() < 0.5 else damage(dice, dice.choice(target.samples)))
    before = {item.name for item in folder.iterdir()}
    try:
        with in_time():
            target.parse(path)
    except WslError as error:
        outcome = "refused" if str(error).strip() else "refused without a word"
    else:
        outcome = "read"
    left = {item.name for item in folder.iterdir()} - before - {"runs", "fuzz", "studies", "jobs"}
    return f"left {', '.join(sorted(left))} behind" if left else outcome


@contextmanager
def in_time() -> Iterator[None]:
    """Interrupt what hangs."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
