"""A new plugin's project from the template, or one kind more in a project that is there; both pass their own tests."""

from __future__ import annotations

import keyword
import re
import tempfile
from pathlib import Path

import attrs

from wsl_toolkit.errors import ConfigError, PluginError
from wsl_toolkit.plugins import api_version
from wsl_toolkit.plugins.registry import KEBAB, Registry
from wsl_toolkit.plugins.source_tree import SourceTree
from wsl_toolkit.system.files import replacing_folder, write_atomically
from wsl_toolkit.version import __version__

TEMPLATE = Path(__file__).parent / "templates" / "plugin"


@attrs.frozen(kw_only=True)
class Names:
    """All names of a new plugin, from the one that its author gave."""

    component: str
    kind: str = ""
    """Given where a project has several components of that name, whose classes must differ in theirs."""

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
        words = [*self.component.split("-"), self.kind]
        return "".join(word.capitalize() for word in words)


def scaffold(names: Names, kind: str, parent: Path, registry: Registry) -> Path:
    """Write a new project below `parent`; return its directory."""
    if names.component in registry.names(kind):
        owner = registry.entry(kind, names.component).owner
        raise ConfigError(f"{kind} {names.component!r} is already provided by {owner}: choose another name")
    target = parent / names.distribution
    if _is_project(target, names):
        _add_kind(target, names, kind)
        return target
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists already: choose another name, or another directory with --into")
    _render(names, kind, target)
    return target


def _is_project(target: Path, names: Names) -> bool:
    """Return whether a directory is the project of that plugin, as `wsl plugin new` makes one."""
    if not (target / "pyproject.toml").is_file():
        return False
    try:
        tree = SourceTree.read(target)
    except PluginError:
        return False
    return tree.distribution == names.distribution and (target / "src" / names.package / "__init__.py").is_file()


def _add_kind(target: Path, names: Names, kind: str) -> None:
    """Add a component of another kind to a project: its module, its test, and a hook that registers it."""
    door = target / "src" / names.package / "__init__.py"
    text = door.read_text(encoding="utf-8")
    files = [Path("src") / names.package / f"{kind}.py", Path("tests") / f"test_{kind}.py"]
    for taken in [str(file) for file in files if (target / file).exists()]:
        raise ConfigError(
            f"{target} exists already, with a {kind} ({taken}): add to it by hand, or choose another name"
        )
    if f"wsl_register_{kind}s" in text:
        raise ConfigError(f"{door} registers {kind}s already: add to it by hand, or choose another name")
    own = attrs.evolve(names, kind=kind)
    with tempfile.TemporaryDirectory(prefix="wsl-new-") as scratch:
        made = Path(scratch) / names.distribution
        _render(own, kind, made)
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target / file, (made / file).read_text(encoding="utf-8"))
        hook = (made / door.relative_to(target)).read_text(encoding="utf-8").partition("@hookimpl")[2]
    line = f"from {names.package}.{kind} import {own.class_name}\n"
    places = [found.end() for found in re.finditer(r"^from [\w.]+ import .*\n", text, re.MULTILINE)]
    place = places[-1] if places else 0
    write_atomically(door, f"{text[:place]}{line}{text[place:].rstrip()}\n\n\n@hookimpl{hook}")


def _render(names: Names, kind: str, target: Path) -> None:
    """Write a whole project."""
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
        # Whole or not at all: half a project would be in the way of the next try.
        with replacing_folder(target) as made:
            copier.run_copy(str(TEMPLATE), made, data=answers, defaults=True, quiet=True)
    except OSError as error:
        raise PluginError(f"{target} cannot be written: {error}") from None
