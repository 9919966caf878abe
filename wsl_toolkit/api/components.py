"""Components as people give them in Python: by name, as a table, as a class, or configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wsl_toolkit.components import ROLES, Component
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.parameters import construct, values_of
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import SESSION, Owner, Registry

HERE = Owner(SESSION, "0", "python")


def make_component(
    role: str, given: Any, parameters: Mapping[str, Any] | None = None, registry: Registry | None = None
) -> Any:
    """Return a configured component of a role; `parameters` are its own, unless it is configured already."""
    values = dict(parameters or {})
    if isinstance(given, Mapping):
        table = {key: value for key, value in given.items() if key != "name"}
        if not isinstance(given.get("name"), str):
            raise ConfigError(f"{role}: a table needs a name, such as {{'name': '…'}}, not {dict(given)!r}")
        return make_component(role, given["name"], {**table, **values}, registry)
    if isinstance(given, str):
        return (registry or load_plugins().registry).create(role, given, values)
    if isinstance(given, type) and issubclass(given, ROLES[role]):
        return construct(given, values, f"{role} {getattr(given, 'name', given.__name__)}")
    if not isinstance(given, ROLES[role]):
        raise ConfigError(f"{role} must be a name or a wsl_toolkit.{ROLES[role].__name__}, not {given!r}")
    if values:
        raise ConfigError(f"{role} {given.name} is configured already: give its name to set {', '.join(values)}")
    return given


def component(role: str, name: str, /, **parameters: Any) -> Any:
    """Return an installed component by its role ('estimator', 'generator', 'backbone', 'dataset') and name."""
    return make_component(role, name, parameters)


def described(component: Component) -> tuple[str, dict[str, Any]]:
    """Return a component's name and parameter values, as a configuration holds them."""
    return component.name, values_of(component)


def registry_with(*components: Component | type[Component]) -> Registry:
    """Return the installed components, and those of the given ones that no plugin registers."""
    installed = load_plugins().registry
    classes = {given if isinstance(given, type) else type(given) for given in components}
    known = {entry.cls for entry in installed.entries()}
    new = sorted(((cls.role, cls) for cls in classes - known), key=lambda item: (item[0], getattr(item[1], "name", "")))
    if not new:
        return installed
    registry = installed.copy()
    registry.add_all(new, HERE)
    return registry
