"""Which version of the plugin API a plugin was written for, read if possible before any of its code runs.

The API has a version of its own, MAJOR.MINOR: additions raise the minor number, anything that can break a plugin
the major one. A plugin states the least it needs as `WSL_API = "1.0"` in the module that its entry point names.
"""

from __future__ import annotations

import re
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from wsl_toolkit.errors import PluginError
from wsl_toolkit.version import API_VERSION, __version__

_STATEMENT = re.compile(r"""^WSL_API(?:\s*:[^=\n]+)?\s*=\s*["']([^"'\n]*)["'][ \t]*(?:\#.*)?$""", re.MULTILINE)


def current() -> str:
    """Return this toolkit's API version as a plugin writes it."""
    return ".".join(map(str, API_VERSION))


def stated(plugin: Any) -> str | None:
    """Return what an imported plugin states, or None."""
    value = getattr(plugin, "WSL_API", None)
    if value is not None and not isinstance(value, str):
        raise PluginError(f'states WSL_API = {value!r}; write it as text, such as "{current()}"')
    return value


def stated_in_source(module: str) -> str | None:
    """Return what a module's source states, without importing it; None if it cannot be read off."""
    source = _source_file(module)
    if source is None:
        return None
    try:
        found = _STATEMENT.search(source.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return found[1] if found else None


def check(version: str | None) -> None:
    """Refuse an API version that this toolkit does not offer; None is taken on trust."""
    if version is None:
        return
    parsed = re.fullmatch(r"(\d+)\.(\d+)", version)
    if not parsed:
        raise PluginError(f'states WSL_API = {version!r}; write it as MAJOR.MINOR, such as "{current()}"')
    major, minor = int(parsed[1]), int(parsed[2])
    if (major, minor) > API_VERSION:
        raise PluginError(
            f"needs plugin API {version}, but wsl-toolkit {__version__} offers {current()}: "
            "upgrade wsl-toolkit, or install an older version of the plugin"
        )
    if major < API_VERSION[0]:
        raise PluginError(
            f"was written for plugin API {version}, which wsl-toolkit {__version__} (API {current()}) no longer "
            "offers: install a newer version of the plugin"
        )


def _source_file(module: str) -> Path | None:
    """Find a module's source file; finding a submodule the usual way would import its parents."""
    path: list[str] | None = None
    spec = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            spec = PathFinder.find_spec(name, path)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None
