"""Name -> component class for each role; duplicates are errors, and a wrong name gets the nearest ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from wsl_toolkit.components import NEEDS, ROLES, Component, Estimator, Metric
from wsl_toolkit.errors import PluginError, UnknownComponentError, did_you_mean, one_line
from wsl_toolkit.parameters import construct, parameters_of
from wsl_toolkit.plugins import class_checks

OWN_DISTRIBUTION = "wsl-toolkit"
SESSION = "python-session"
"""Who provides components that are defined in a notebook or a script."""
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DECLARED = {
    "generator": ("setting",),
    "estimator": ("assumption", "kind"),
    "metric": ("label", "reads", "better"),
}
"""What a class of a role must say of itself, beside its name."""
METRIC_VALUES = {
    "reads": ("candidates", "clean labels"),
    "better": ("higher", "lower"),
    "part": ("validation", "test"),
    "scale": ("share", "risk", "classes"),
}
_UNDECORATED = type(attrs.field())
"""What `param()` leaves on a class until attrs has made a field of it."""


@attrs.frozen
class Owner:
    """Who provides a component."""

    distribution: str
    version: str
    plugin: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@attrs.frozen
class Entry:
    """A registered component class and its owner."""

    cls: type[Component]
    owner: Owner


class Registry:
    """The components that are installed."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Entry]] = {role: {} for role in ROLES}
        self.failures: dict[str, str] = {}
        """Quarantined plugins and why: quoted when a component is missing."""

    def copy(self) -> Registry:
        """Return a registry of the same components, to which others can be added."""
        new = Registry()
        new._entries = {role: dict(entries) for role, entries in self._entries.items()}
        new.failures = dict(self.failures)
        return new

    def add_all(self, components: Iterable[tuple[str, Any]], owner: Owner) -> None:
        """Register all components of a plugin, or, if one of them is wrong, none."""
        checked = [(role, self._checked(role, cls, owner)) for role, cls in components]
        seen: set[tuple[str, str]] = set()
        for role, cls in checked:
            if (role, cls.name) in seen:
                raise PluginError(f"registers two {role}s named {cls.name!r}")
            seen.add((role, cls.name))
        for role, cls in checked:
            self._entries[role][cls.name] = Entry(cls, owner)

    def _checked(self, role: str, cls: Any, owner: Owner) -> type[Component]:
        base = ROLES[role]
        if not (isinstance(cls, type) and issubclass(cls, base)):
            what = cls.__name__ if isinstance(cls, type) else repr(cls)
            raise PluginError(f"{what} is not a subclass of wsl_toolkit.{base.__name__}, as a {role} must be")
        name = getattr(cls, "name", None)
        if not (isinstance(name, str) and KEBAB.fullmatch(name)):
            raise PluginError(f"{role} {cls.__name__} needs a class attribute `name` in kebab-case, not {name!r}")
        if missing := sorted(getattr(cls, "__abstractmethods__", ())):
            raise PluginError(f"{role} {name!r} does not define {', '.join(missing)}")
        needed = DECLARED.get(role, ())
        for attribute in needed:
            if not hasattr(cls, attribute):
                raise PluginError(f"{role} {name!r} does not declare `{attribute}`")
        self._check_parameters(cls, f"{role} {name!r}")
        class_checks.check_class(cls)
        if issubclass(cls, Estimator):
            self._check_needs(cls)
        if issubclass(cls, Metric):
            self._check_metric(cls)
        taken = self._entries[role].get(name)
        if taken:
            raise PluginError(f"{role} {name!r} is already provided by {taken.owner}; {owner} must choose another name")
        return cls

    @staticmethod
    def _check_parameters(cls: type[Component], what: str) -> None:
        if any(isinstance(value, _UNDECORATED) for value in vars(cls).values()):
            raise PluginError(f"{what} has parameters but is not decorated with @attrs.frozen(kw_only=True)")
        try:
            parameters_of(cls)
        except (NameError, TypeError, AttributeError) as error:
            raise PluginError(f"{what} has a parameter whose type cannot be read: {one_line(error)}") from error

    @staticmethod
    def _check_needs(cls: type[Estimator]) -> None:
        for need in sorted(cls.needs):
            if need not in NEEDS:
                raise PluginError(
                    f"estimator {cls.name!r} needs {need!r}, which is not known.{did_you_mean(need, NEEDS)}"
                )
        if cls.stackable and cls.needs_that_do_not("stacks"):
            raise PluginError(
                f"estimator {cls.name!r} needs {', '.join(sorted(cls.needs))}, so stackable must be False"
            )
        if cls.stackable and cls.looks_back():
            raise PluginError(f"estimator {cls.name!r} defines after_epoch, so stackable must be False")

    @staticmethod
    def _check_metric(cls: type[Metric]) -> None:
        for attribute, known in METRIC_VALUES.items():
            if (value := getattr(cls, attribute)) not in known:
                raise PluginError(f"metric {cls.name!r}: `{attribute}` is one of {', '.join(known)}, not {value!r}")
        if cls.part == "test" and cls.reads == "candidates":
            raise PluginError(f"metric {cls.name!r}: the test part has no candidate sets to read")
        if required := [parameter.name for parameter in parameters_of(cls).values() if parameter.required]:
            raise PluginError(f"metric {cls.name!r} is used with its defaults, and {required[0]!r} has none")

    def names(self, role: str) -> list[str]:
        """Return the names of a role's components, sorted."""
        return sorted(self._entries[role])

    def entries(self) -> Iterator[Entry]:
        """Yield every registered component."""
        for found in self._entries.values():
            yield from found.values()

    def has(self, role: str, name: str) -> bool:
        """Return whether a component is installed."""
        return name in self._entries.get(role, {})

    def entry(self, role: str, name: str) -> Entry:
        """Return a component class with its owner, or say which names are near."""
        if role not in self._entries:
            raise UnknownComponentError(f"there is no role {role!r}.{did_you_mean(role, ROLES)}")
        found = self._entries[role].get(name)
        if found:
            return found
        message = f"no {role} is named {name!r}.{did_you_mean(name, self._entries[role])}"
        if not did_you_mean(name, self._entries[role]):
            message += f" Installed: {', '.join(self.names(role)) or 'none'}."
        for plugin, failure in self.failures.items():
            message += f" (Plugin {plugin} is not loaded and may provide it: {failure})"
        raise UnknownComponentError(message)

    def get(self, role: str, name: str) -> Any:
        """Return a component class."""
        return self.entry(role, name).cls

    def create(self, role: str, name: str, values: Mapping[str, Any]) -> Any:
        """Return a configured component."""
        return construct(self.get(role, name), values, where=f"{role} {name}")
