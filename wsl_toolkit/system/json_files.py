"""Reads JSON that the toolkit wrote itself within bounds, and notices damage: size, depth, numbers, a checksum.

Whatever is wrong with a file is a ValueError of a few words, so that each reader can say what it means for its file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 256 * 2**20
"""The records of a million epochs take less."""
MOST_DEPTH = 32
CHECKSUM = "checksum"


def parse_json(text: str) -> Any:
    """Parse JSON; a ValueError for what is not JSON, is nested too deep, or says a thing twice."""
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    # There are no more levels than brackets: most files need no second look.
    if text.count("[") + text.count("{") > MOST_DEPTH:
        _check_depth(value)
    return value


def read_text(path: Path, errors: str = "strict") -> str:
    """Read a file of ours; one that is larger than any is a ValueError, before memory is taken for it."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"it has {size // 2**20} MB, which no file of its kind has")
    return path.read_text(encoding="utf-8", errors=errors)


def read_json(path: Path) -> Any:
    """Parse a file; an OSError if it cannot be read, a ValueError if there is anything wrong with what it holds."""
    return parse_json(read_text(path))


def sealed(values: Mapping[str, Any], indent: int | None = None) -> str:
    """Return an object as JSON with a checksum of its content."""
    return json.dumps({**values, CHECKSUM: _checksum(values)}, indent=indent)


def unsealed(value: Any) -> dict[str, Any]:
    """Return the object without its checksum, which must be right; files of the first releases have none."""
    if not isinstance(value, dict):
        raise ValueError("it is not a table")
    values = {key: each for key, each in value.items() if key != CHECKSUM}
    if CHECKSUM in value and value[CHECKSUM] != _checksum(values):
        raise ValueError("its content does not match its checksum")
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [part for each in inner for part in each if isinstance(part, dict | list)]
        if not level:
            return
    raise ValueError("it is nested too deep")


def _checksum(values: Mapping[str, Any]) -> str:
    """Return a checksum of the content that does not depend on the order of keys, nor on what JSON does not keep."""
    kept = json.loads(json.dumps(values))
    return f"{zlib.crc32(json.dumps(kept, sort_keys=True).encode()):08x}"
