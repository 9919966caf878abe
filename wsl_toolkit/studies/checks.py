"""What a study file may hold: sizes, types, search spaces; each mistake is one line that says what to write instead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from wsl_toolkit.errors import ConfigError, did_you_mean
from wsl_toolkit.parameters import parameters_of, without_none
from wsl_toolkit.training.config import Training

STUDYS_OWN = ("seed", "trials", "device")
"""Training settings that belong to a study or to a machine, and are never searched."""

MOST_VALUES = 1000


def refuse_text(values: Mapping[str, Any], cls: type, where: str) -> None:
    """Refuse text where a number or a truth value is meant: on a command line all is text, in a file it is a slip."""
    wanted = {int: "a whole number", float: "a number", bool: "true or false"}
    known = parameters_of(cls)
    for key, value in values.items():
        name = key.replace("-", "_")
        kind = without_none(known[name].type) if name in known else None
        if isinstance(value, str) and kind in wanted:
            raise ConfigError(
                f"{where}: {name} must be {wanted[kind]}, not the text {shown(value)}: leave the quotes out"
            )


def check_space(space: Mapping[str, Any], *, grid: bool) -> None:
    """Refuse what cannot be searched: unknown training settings, values of the wrong kind, empty or odd ranges."""
    known = [name for name in parameters_of(Training) if name not in STUDYS_OWN]
    for name, values in space.items():
        if "." not in name and name not in known:
            raise ConfigError(
                f"search space: {shown(name)} is not a training setting that can be searched."
                f'{did_you_mean(name, known)} A component\'s is written as "role.name".'
            )
        check_range(name, values, grid=grid)
        for value in values if isinstance(values, list) else (values["low"], values["high"]):
            if "." not in name:
                refuse_text({name: value}, Training, "search space")


def check_range(name: str, values: Any, *, grid: bool) -> None:
    """Refuse what is neither a list of values nor, where Optuna proposes, a range with low and high."""
    if isinstance(values, list) and values:
        if len(values) > MOST_VALUES:
            raise ConfigError(f"search space: {name} lists {len(values)} values; {MOST_VALUES} is the most")
        for place, value in enumerate(values):
            if value in values[:place]:
                raise ConfigError(f"search space: {name} lists {shown(value)} twice")
        return
    if grid or not isinstance(values, dict) or not {"low", "high"} <= set(values) <= {"low", "high", "log"}:
        wanted = "a list of values" if grid else "a list of values, or { low = …, high = …, log = true }"
        raise ConfigError(f"search space: {name} must be {wanted}, not {shown(values)}")
    low, high, log = values["low"], values["high"], values.get("log", False)
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not isinstance(log, bool) or not math.isfinite(low) or not math.isfinite(high):
        raise ConfigError(f"search space: {name} needs two finite numbers as low and high, and log = true or false")
    if low > high or (log and low <= 0):
        least = " and log = true needs low > 0" if log else ""
        raise ConfigError(
            f"search space: {name} has low = {low!r} and high = {high!r}: low must not exceed high{least}"
        )


def refuse_overridden(owner: str, fixed: Iterable[str], searched: Iterable[str]) -> None:
    """Refuse a value that a search would override silently."""
    if both := sorted(set(fixed) & set(searched)):
        raise ConfigError(
            f"{owner} fixes {both[0]}, which the search overrides: leave it out, or, to keep one value for a method, "
            f'give that method search = {{ "{both[0]}" = [value] }}'
        )


def shown(value: Any, most: int = 60) -> str:
    """Return a value as it was written, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits; tables in tables without end
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= most else f"{text[:most]}…"
