"""A plugin's checkout as if it were installed: its metadata beside its sources, on the path of a child process."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.errors import PluginError
from wsl_toolkit.hookspecs import PROJECT

NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
VERSION = r"[A-Za-z0-9]([A-Za-z0-9.!+_-]*[A-Za-z0-9])?"
POINT = r"[\w.-]([\w .:/-]*[\w.-])?"
TARGET = r"\s*\w+(\.\w+)*\s*(:\s*\w+(\.\w+)*\s*)?"
"""What a distribution's name, its version, and an entry point's name and target may look like."""
MOST_LETTERS = 100


@attrs.frozen
class SourceTree:
    """A project directory with a plugin's entry points."""

    root: Path
    distribution: str
    version: str
    entry_points: dict[str, str]

    @classmethod
    def read(cls, root: Path) -> SourceTree:
        """Read a project's pyproject.toml."""
        file = root / "pyproject.toml"
        try:
            content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PluginError(f"{root} is not a plugin's checkout: it has no pyproject.toml") from None
        except (ValueError, RecursionError) as error:
            raise PluginError(f"{file} cannot be read: {error}") from None
        project = content.get("project", {})
        tables = project.get("entry-points", {}) if isinstance(project, dict) else {}
        points = tables.get(PROJECT, {}) if isinstance(tables, dict) else {}
        if not points or not isinstance(points, dict) or "name" not in project:
            raise PluginError(
                f"{file} declares no plugin: it needs a [project] name and a table [project.entry-points.{PROJECT}]"
            )
        version = project.get("version", "0")
        # They become the names of files and lines in them.
        for what, value, form in (
            ("the project's name", project["name"], NAME),
            ("the project's version", version, VERSION),
            *(("the name of an entry point", name, POINT) for name in points),
            *((f"entry point {name}", target, TARGET) for name, target in points.items()),
        ):
            if not isinstance(value, str) or len(value) > MOST_LETTERS or not re.fullmatch(form, value):
                raise PluginError(f"{file}: {what} is {str(value)[:60]!r}, which no package can have: correct it")
        return cls(root.resolve(), project["name"], version, dict(points))

    def install_metadata(self, into: Path) -> list[Path]:
        """Write what a package index would know of it; return the directories that make it importable."""
        info = into / f"{self.distribution.replace('-', '_')}-{self.version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {self.distribution}\nVersion: {self.version}\n")
        lines = [f"{name} = {target}" for name, target in self.entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{PROJECT}]", *lines, ""]))
        source = self.root / "src"
        return [into, source if source.is_dir() else self.root]

    @property
    def tests(self) -> Path | None:
        """The project's own tests."""
        found = self.root / "tests"
        return found if found.is_dir() else None
