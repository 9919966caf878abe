"""A new plugin's project from the template: complete, and passing its own tests as it comes."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import attrs

from wsl_toolkit.errors import ConfigError, PluginError
from wsl_toolkit.plugins import api_version
from wsl_toolkit.plugins.registry import KEBAB, Registry
from wsl_toolkit.version import __version__

TEMPLATE = Path(__file__).parent / "templates" / "plugin"


@attrs.frozen(kw_only=True)
class Names:
    """All names of a new plugin, from the one that its author gave."""

    component: str

    @classmethod
    def of(cls, name: str) -> Names:
        """Take 'soft-labels' or 'wsl-soft-labels'."""
        component = name.lower().replace("_", "-").removeprefix("wsl-")
        if not KEBAB.fullmatch(component) or not component[0].isalpha():
            raise ConfigError(
                f"a plugin's name is kebab-case and starts with a letter, such as soft-labels, not {name!r}"
            )
        if keyword.iskeyword(component) or component in ("toolkit", "builtins"):
            raise ConfigError(f"a plugin cannot be called {name!r}: choose another name")
        return cls(component=component)

    @property
    def distribution(self) -> str:
        """What pip installs."""
        return f"wsl-{self.component}"

    @property
    def package(self) -> str:
        """What Python imports."""
        return self.distribution.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The component's class."""
        return "".join(word.capitalize() for word in re.split("-", self.component))


def scaffold(names: Names, kind: str, parent: Path, registry: Registry) -> Path:
    """Write a new project below `parent`; return its directory."""
    if names.component in registry.names(kind):
        owner = registry.entry(kind, names.component).owner
        raise ConfigError(f"{kind} {names.component!r} is already provided by {owner}: choose another name")
    target = parent / names.distribution
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists already: choose another name, or another directory with --into")
    try:
        import copier
    except ImportError:
        raise PluginError("making a plugin needs copier: pip install 'wsl-toolkit[plugins]'") from None
    answers = {
        "distribution": names.distribution,
        "package": names.package,
        "component": names.component,
        "class_name": names.class_name,
        "kind": kind,
        "api_version": api_version.current(),
        "toolkit_version": __version__,
    }
    try:
        copier.run_copy(str(TEMPLATE), target, data=answers, defaults=True, quiet=True)
    except OSError as error:
        raise PluginError(f"{target} cannot be written: {error}") from None
    return target
