"""Reads TOML files within bounds: size, depth, numbers and text, so that no file takes the reader down."""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wsl_toolkit.errors import ConfigError

MOST_BYTES = 2**20
MOST_DEPTH = 16
MOST_TEXT = 4096
MOST_INTEGER = 2**63 - 1
"""What TOML demands of an integer."""


def read_toml(path: Path, what: str = "configuration file") -> dict[str, Any]:
    """Read a TOML file, or say in one line what is wrong with it and where."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} is larger than {MOST_BYTES // 2**10} kB: that is not a {what}")
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no {what} {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deep: a {what} needs no more than {MOST_DEPTH} levels") from None
    except ValueError:  # Python's own limit: an integer of more than 4300 digits
        raise ConfigError(f"{path} holds an integer of more than 64 bits: no setting takes one") from None
    check_values(values, str(path), what)
    return values


def check_values(values: Mapping[str, Any], where: str, what: str = "study file") -> None:
    """Refuse tables without end, keys that are not text, integers beyond 64 bits and text of thousands of letters."""
    waiting: list[tuple[Any, int]] = [(values, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise ConfigError(f"{where} is nested too deep: a {what} needs no more than {MOST_DEPTH} levels")
        if isinstance(value, Mapping):
            waiting += [(part, depth + 1) for item in value.items() for part in item]
            if not all(isinstance(key, str) for key in value):
                raise ConfigError(f"{where}: the keys of a table are text")
        elif isinstance(value, list | tuple):
            waiting += [(item, depth + 1) for item in value]
        elif isinstance(value, str):
            _check_text(value, where)
        elif isinstance(value, int) and abs(value) > MOST_INTEGER:
            raise ConfigError(f"{where} holds an integer of more than 64 bits: no setting takes one")


def _check_text(text: str, where: str) -> None:
    if len(text) > MOST_TEXT:
        raise ConfigError(f"{where} holds text of {len(text)} characters; {MOST_TEXT} is the most: {text[:40]!r}…")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        raise ConfigError(f"{where} holds a control character, which no setting takes: {text[:40]!a}")
