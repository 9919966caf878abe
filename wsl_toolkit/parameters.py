"""Parameters of components: declared once, then an option, a config key and a tracked value."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from wsl_toolkit.errors import ConfigError, did_you_mean

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Bounds:
    """The values that a parameter accepts."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[str, ...] | None = None

    def describe(self) -> str:
        """Return the range as people write it, such as '> 0, <= 1' or 'a, b or c'; empty if free."""
        if self.choices:
            return " | ".join(self.choices)
        signs = (("> ", self.gt), (">= ", self.ge), ("< ", self.lt), ("<= ", self.le))
        return ", ".join(f"{sign}{limit:g}" for sign, limit in signs if limit is not None)

    def refuse(self, value: Any) -> str | None:
        """Return what is wrong with a value, or None."""
        if self.choices is not None and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if isinstance(value, float) and not math.isfinite(value):
            return "must be a finite number"
        fails = (
            (self.gt is not None and not value > self.gt)
            or (self.ge is not None and not value >= self.ge)
            or (self.lt is not None and not value < self.lt)
            or (self.le is not None and not value <= self.le)
        )
        return f"must be {self.describe()}" if fails else None


def param(
    default: Any = attrs.NOTHING,
    *,
    help: str,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Sequence[str] | None = None,
) -> Any:
    """Declare a parameter of a component: its default, its meaning and its range."""
    bounds = Bounds(ge=ge, gt=gt, le=le, lt=lt, choices=tuple(choices) if choices else None)

    def check(component: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is None and default is None:
            return
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            problem = bounds.refuse(item)
            if problem:
                owner = getattr(component, "name", type(component).__name__)
                raise ConfigError(f"{owner}: {attribute.name} {problem}, not {item!r}")

    return attrs.field(default=default, validator=check, metadata={"help": help, "bounds": bounds})


@attrs.frozen(kw_only=True)
class Parameter:
    """A component's parameter as tools see it."""

    name: str
    type: Any
    default: Any
    help: str
    bounds: Bounds

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is attrs.NOTHING

    @property
    def type_name(self) -> str:
        """The type as a user reads it."""
        return type_name(self.type)


def parameters_of(cls: type) -> dict[str, Parameter]:
    """Return the declared parameters of a component class, in order."""
    attrs.resolve_types(cls)
    return {
        field.name: Parameter(
            name=field.name,
            type=field.type,
            default=field.default,
            help=field.metadata["help"],
            bounds=field.metadata["bounds"],
        )
        for field in attrs.fields(cls)
        if "bounds" in field.metadata
    }


def construct(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build a component from plain values; unknown names and wrong types are errors that say where."""
    known = parameters_of(cls)
    label = where or getattr(cls, "name", cls.__name__)
    arguments = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known:
            accepted = f" It accepts {', '.join(known)}." if known else " It has no parameters."
            raise ConfigError(f"{label}: unknown parameter {key!r}.{did_you_mean(name, known)}{accepted}")
        arguments[name] = coerce(value, known[name].type, f"{label}: {name}")
    missing = [p.name for p in known.values() if p.required and p.name not in arguments]
    if missing:
        raise ConfigError(f"{label}: parameter {missing[0]!r} is required ({known[missing[0]].help})")
    return cls(**arguments)


def values_of(component: Any) -> dict[str, Any]:
    """Return a component's parameter values as plain types, as a config file would hold them."""
    return {name: plain(getattr(component, name)) for name in parameters_of(type(component))}


def plain(value: Any) -> Any:
    """Return a value as TOML and JSON know it."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def type_name(kind: Any) -> str:
    """Return a type as a user reads it: 'float', 'list of int'."""
    kind = without_none(kind)
    if typing.get_origin(kind) is tuple:
        return f"list of {type_name(typing.get_args(kind)[0])}"
    names: dict[Any, str] = {str: "text", Path: "file", bool: "yes/no"}
    return names.get(kind) or str(kind.__name__)


def without_none(kind: Any) -> Any:
    """Return X for X | None."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return next(arg for arg in typing.get_args(kind) if arg is not type(None))
    return kind


def coerce(value: Any, kind: Any, where: str) -> Any:
    """Turn a config file's or a command line's value into a parameter's type, or say why it cannot be."""
    if kind is not without_none(kind):
        if value is None or value == "":
            return None
        kind = without_none(kind)
    if typing.get_origin(kind) is tuple:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            items = [items]
        inner = typing.get_args(kind)[0]
        return tuple(coerce(item.strip() if isinstance(item, str) else item, inner, where) for item in items)
    if kind in (str, Path) and isinstance(value, str | Path):
        return kind(value)
    if kind is bool:
        return _as_bool(value, where)
    if kind in (int, float) and isinstance(value, int | float | str) and not isinstance(value, bool):
        return _as_number(value, kind, where)
    raise ConfigError(f"{where} must be {type_name(kind)}, not {value!r}")


def _as_bool(value: Any, where: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ConfigError(f"{where} must be true or false, not {value!r}")


def _as_number(value: int | float | str, kind: type, where: str) -> int | float:
    try:
        number = float(value)
        if kind is float:
            return number
        whole = int(value)
    except (ValueError, OverflowError):
        raise ConfigError(f"{where} must be {'a whole number' if kind is int else 'a number'}, not {value!r}") from None
    if whole != number:
        raise ConfigError(f"{where} must be a whole number, not {value!r}")
    return whole
