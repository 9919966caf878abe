"""Texts without the users, passwords and tokens of the addresses in them."""

from __future__ import annotations

import re

_START = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)")
_SECRET = re.compile(
    r"(?i)([?&;][\w.-]*(?:password|passwd|pwd|token|secret|key|signature|sig|credential)[\w.-]*=)[^&;#\s'\"]+"
)


def redact(text: str) -> str:
    """Hide users, passwords and tokens of every address in a text.

    A password may hold any character, so everything goes up to the last `@` before the next address or the line's end:
    rather too much of a text than a part of a password.
    """
    before, *found = _START.split(text)
    parts = [before]
    for scheme, rest in zip(found[::2], found[1::2], strict=True):
        line = rest.partition("\n")[0]
        has_user = "@" in line and not line.startswith("/")
        parts += [scheme, f"***{rest[line.rindex('@') :]}" if has_user else rest]
    return _SECRET.sub(r"\1***", "".join(parts))
