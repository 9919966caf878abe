"""What is checked of a component's class when it is registered, without torch: declarations, defaults, likely slips.

What cannot mean anything is refused; what is only suspicious (a method one letter away from one that would be called)
is a warning, which `wsl plugin list` and a run show.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.components import Component, Estimator
from wsl_toolkit.errors import ConfigError, PluginError, did_you_mean
from wsl_toolkit.parameters import Parameter, coerce, parameters_of, type_name, without_none
from wsl_toolkit.plugins.places import class_defined_at
from wsl_toolkit.settings import Kind, Setting

UPDATE_WHEN = ("never", "before", "after")
CONFIGURABLE = (str, Path, bool, int, float)


def _one_of(*values: str) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value in values:
            return None
        hint = did_you_mean(value, values) if isinstance(value, str) else ""
        return f"must be one of {', '.join(map(repr, values))}, not {value!r}.{hint}"

    return check


def _member(enum: type[Setting] | type[Kind]) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if isinstance(value, enum):
            return None
        return f"must be one of {', '.join(f'{enum.__name__}.{each.name}' for each in enum)}, not {value!r}"

    return check


def _texts(kind: type, form: str) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if isinstance(value, kind) and all(isinstance(each, str) for each in value):  # type: ignore[attr-defined]
            return None
        return f"must be a {kind.__name__} of names, such as {form}, not {value!r}"

    return check


def _instance(kind: type, words: str) -> Callable[[Any], str | None]:
    return lambda value: None if type(value) is kind else f"must be {words}, not {value!r}"


DECLARATIONS: dict[str, dict[str, Callable[[Any], str | None]]] = {
    "generator": {"setting": _member(Setting), "min_classes": _instance(int, "a whole number")},
    "estimator": {
        "assumption": _member(Setting),
        "kind": _member(Kind),
        "update_when": _one_of(*UPDATE_WHEN),
        "needs": _texts(frozenset, 'frozenset({"features"})'),
        "on_candidates": _texts(frozenset, 'frozenset({"confidence"})'),
        "stackable": _instance(bool, "True or False"),
        "trains": _instance(bool, "True or False"),
    },
    "dataset": {"suffixes": _texts(tuple, '(".mat",)')},
}
"""Role -> class attribute -> what is wrong with a value, or None."""


def check_class(cls: type[Component]) -> None:
    """Refuse class attributes, parameter types and defaults that cannot mean anything; the class has a valid name."""
    what = f"{cls.role} {cls.name!r}"
    problem = _wrong_declaration(cls) or next(filter(None, map(_wrong_parameter, parameters_of(cls).values())), None)
    if problem:
        place = class_defined_at(cls)
        raise PluginError(f"{what}: {problem}" + (f" ({cls.__name__}, {place})" if place else ""))


def _wrong_declaration(cls: type[Component]) -> str | None:
    own_fields = {field.name for field in attrs.fields(cls)} if attrs.has(cls) else set()
    declared = {
        "citation": _instance(str, "text"),
        "contract": _instance(dict, "a dictionary"),
        **DECLARATIONS.get(cls.role, {}),
    }
    for name, check in declared.items():
        if name in own_fields:
            return f"`{name}` is a field of each object: annotate it as ClassVar, for it speaks for the class"
        if hasattr(cls, name) and (wrong := check(getattr(cls, name))):
            return f"`{name}` {wrong}"
    return None


def _wrong_parameter(parameter: Parameter) -> str | None:
    kind = without_none(parameter.type)
    inner = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple and typing.get_args(kind) else kind
    if inner not in CONFIGURABLE:
        allowed = ", ".join(each.__name__ for each in CONFIGURABLE)
        shown = getattr(parameter.type, "__name__", None) or str(parameter.type)
        return (
            f"parameter {parameter.name!r} has the type {shown}, which neither an option nor a file can give; "
            f"use {allowed}, a tuple of one of them, or any of these | None"
        )
    if parameter.required or isinstance(parameter.default, attrs.Factory):  # type: ignore[arg-type]
        return None
    return _wrong_default(parameter)


def _wrong_default(parameter: Parameter) -> str | None:
    default, optional = parameter.default, parameter.type is not without_none(parameter.type)
    if default is None:
        return (
            None if optional else f"the default of {parameter.name!r} is None, but its type says {parameter.type_name}"
        )
    try:
        same = coerce(default, parameter.type, "") == default and not (
            isinstance(default, str) and without_none(parameter.type) not in (str, Path)
        )
    except ConfigError:
        same = False
    if not same:
        return f"the default of {parameter.name!r}, {default!r}, is not of its type, {type_name(parameter.type)}"
    items = default if isinstance(default, tuple) else (default,)
    refused = next(filter(None, map(parameter.bounds.refuse, items)), None)
    return f"the default of {parameter.name!r}, {default!r}, {refused}" if refused else None


def suspicions(cls: type[Component]) -> list[str]:
    """Return what looks like a slip: names that are nearly those the engine asks for, fields that nobody can set."""
    found = [
        f"defines {own!r}, which nobody calls: did you mean {meant!r}?" for own, meant in _near_misses(cls).items()
    ]
    found += [
        f"has the field {field.name!r} without param(): no option or file can set it, and no record shows it "
        "(what `prepare` learns is kept in attrs.field(eq=False))"
        for field in (attrs.fields(cls) if attrs.has(cls) else ())
        if field.init and field.eq and "bounds" not in field.metadata
    ]
    if cls.role == "estimator":
        found += _idle_updates(cls)
    place = class_defined_at(cls) if found else ""
    return [f"{cls.role} {cls.name!r} {each}" + (f" ({place})" if place else "") for each in found]


def _idle_updates(cls: Any) -> list[str]:
    defines = cls.update is not Estimator.update
    if defines and cls.update_when == "never":
        return ["defines `update`, but `update_when` is 'never', so that it is never called"]
    if not defines and cls.update_when != "never":
        return [f"declares update_when = {cls.update_when!r}, but does not define `update`"]
    return []


def _near_misses(cls: type) -> dict[str, str]:
    """Return own names that are one edit away from a name of the base class that the class does not define itself."""
    bases = [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "wsl_toolkit"]
    known = {name for base in bases for name in (*vars(base), *inspect.get_annotations(base))}
    known = {name for name in known if not name.startswith("_")}
    own = {
        name
        for base in cls.__mro__
        if base not in bases and base is not object
        for name in vars(base)
        if not name.startswith("_")
    }
    fields = {field.name for field in attrs.fields(cls)} if attrs.has(cls) else set()
    return {
        name: near
        for name in sorted(own - known - fields)
        for near in [next((each for each in sorted(known - own) if one_edit_apart(name, each)), None)]
        if near
    }


def one_edit_apart(one: str, other: str) -> bool:
    """Return whether a letter added, left out, changed or exchanged with its neighbour turns one word into another."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    short, long = sorted((one, other), key=len)
    start = next((i for i, letter in enumerate(short) if letter != long[i]), len(short))
    if len(short) != len(long):
        return short[start:] == long[start + 1 :]
    if short[start + 1 :] == long[start + 1 :]:
        return True
    swapped = short[start : start + 2][::-1] == long[start : start + 2]
    return swapped and short[start + 2 :] == long[start + 2 :]
