"""Reads a study's description from plain values, as TOML or Python has them; strict, and without torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import attrs

from wsl_toolkit.components import ROLES
from wsl_toolkit.errors import ConfigError, did_you_mean
from wsl_toolkit.parameters import coerce, construct, parameters_of, plain
from wsl_toolkit.studies.checks import refuse_text, shown
from wsl_toolkit.studies.description import (
    MOST_SETTINGS,
    MOST_TRIALS,
    Component,
    Method,
    Search,
    Study,
    StudySetting,
    component_label,
)
from wsl_toolkit.studies.rule import Selection
from wsl_toolkit.system.toml_files import check_values
from wsl_toolkit.training.config import Training, make_training, read_callbacks
from wsl_toolkit.training.metrics import Measure, rules

T = TypeVar("T")


def from_dict(values: Mapping[str, Any], where: str, recorded: Measure | None = None) -> Study:
    """Read a description from plain values; an unknown key is an error that suggests the right one.

    `recorded` is what an earlier start knew of the metric that selects, in case its plugin is gone.
    """
    check_values(values, where)
    scalars_known = ("name", "title", "trials", "seed", "paper_table")
    known = (*scalars_known, "training", "search", "selection", "settings", "methods", "quick")
    given = {key.replace("-", "_"): value for key, value in values.items()}
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}.{did_you_mean(key, known)}")
    for key in ("name", "settings", "methods"):
        if key not in given:
            raise ConfigError(f"{where}: a study needs {key!r}")
    search = dict(_dict(given.get("search", {}), f"{where}: [search]"))
    space = _dict(search.pop("space", {}), f"{where}: [search.space]")
    refuse_text(given, Study, where)
    scalars = {
        name: coerce(given[name], parameter.type, f"{where}: {name}")
        for name, parameter in parameters_of(Study).items()
        if name in given
    }
    return Study(
        name=coerce(given["name"], str, f"{where}: name"),
        title=coerce(given.get("title", ""), str, f"{where}: title"),
        settings=tuple(s for item in _list(given["settings"], f"{where}: settings") for s in _settings(item, where)),
        methods=tuple(_method(item, where) for item in _list(given["methods"], f"{where}: methods")),
        training=_training(given.get("training", {}), f"{where}: [training]"),
        search=attrs.evolve(_construct(Search, search, f"{where}: [search]"), space=_space(space)),
        selection=_selection(given.get("selection", {}), f"{where}: [selection]", recorded),
        quick=_dict(given.get("quick", {}), f"{where}: [quick]"),
        **scalars,
    )


def _settings(item: Any, where: str) -> Iterator[StudySetting]:
    """Expand one [[settings]] table: each role may list several components, and all combinations are meant."""
    table = _dict(item, f"{where}: [[settings]]")
    roles = ("dataset", "generator", "backbone")
    for key in table:
        if key not in (*roles, "training", "label", "trials"):
            raise ConfigError(f"{where}: [[settings]]: unknown key {key!r}.{did_you_mean(key, roles)}")
    for role in ("dataset", "backbone"):
        if role not in table:
            raise ConfigError(f"{where}: [[settings]] needs a {role}")
    choices = [
        [_component(role, one, where) for one in (table[role] if isinstance(table[role], list) else [table[role]])]
        if role in table
        else [None]
        for role in roles
    ]
    training = _training(table.get("training", {}), f"{where}: [settings.training]")
    name = coerce(table["label"], str, f"{where}: [[settings]] label") if "label" in table else None
    refuse_text({"trials": table.get("trials")}, Study, f"{where}: [[settings]]")
    trials = coerce(table["trials"], int, f"{where}: [[settings]] trials") if "trials" in table else None
    if trials is not None and not 1 <= trials <= MOST_TRIALS:
        bound = ">= 1" if trials < 1 else f"<= {MOST_TRIALS}"
        raise ConfigError(f"{where}: [[settings]] trials must be {bound}, not {trials}")
    if (count := math.prod(map(len, choices))) > MOST_SETTINGS:
        raise ConfigError(f"{where}: [[settings]] has {count} combinations; {MOST_SETTINGS} is the most")
    for dataset, generator, backbone in itertools.product(*choices):
        assert dataset is not None
        assert backbone is not None
        yield StudySetting(
            dataset=dataset, generator=generator, backbone=backbone, training=training, name=name, trials=trials
        )


def _method(item: Any, where: str) -> Method:
    if isinstance(item, str):
        return Method(estimator=(item, {}), label=item)
    table = _dict(item, f"{where}: [[methods]]")
    known = ("estimator", "label", "training", "search", "transform")
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: [[methods]]: unknown key {key!r}.{did_you_mean(key, known)}")
    if "estimator" not in table:
        raise ConfigError(f"{where}: [[methods]] needs an estimator")
    estimator = _component("estimator", table["estimator"], where)
    transform = _component("transform", table["transform"], where) if "transform" in table else None
    label = component_label(estimator) + (f" after {component_label(transform)}" if transform else "")
    return Method(
        estimator=estimator,
        label=coerce(table.get("label", label), str, f"{where}: [[methods]] label"),
        transform=transform,
        training=_training(table.get("training", {}), f"{where}: [methods.training]"),
        space=_space(_dict(table.get("search", {}), f"{where}: [methods.search]")),
    )


def _component(role: str, value: Any, where: str) -> Component:
    assert role in ROLES
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ConfigError(f"{where}: a {role} is a name, or a table with a name and values, not {shown(value)}")
    return value["name"], {key.replace("-", "_"): item for key, item in value.items() if key != "name"}


def _training(values: Any, where: str) -> dict[str, Any]:
    """Check training keys now; seeds and trials are the study's to set."""
    table = {key.replace("-", "_"): value for key, value in _dict(values, where).items()}
    for key in ("seed", "trials"):
        if key in table:
            raise ConfigError(f"{where}: {key} belongs at the top of a study, not among its training settings")
    refuse_text({key: value for key, value in table.items() if not isinstance(value, Mapping)}, Training, where)
    callbacks = table.pop("callbacks", None)
    training = make_training(table, where).to_dict()
    found = {key: training[key] for key in table}
    if callbacks is not None:
        found["callbacks"] = [{"name": name, **values} for name, values in read_callbacks(callbacks, where)]
    return found


def _construct(cls: type[T], values: Any, where: str) -> T:
    """Build a part of a description from its table."""
    table = _dict(values, where)
    refuse_text(table, cls, where)
    return construct(cls, table, where)


def _selection(values: Any, where: str, recorded: Measure | None) -> Selection:
    table = _dict(values, where)
    gone = recorded is not None and table.get("rule") == recorded.rule and recorded.rule not in rules()
    if not gone:
        return _construct(Selection, table, where)
    others = {key: value for key, value in table.items() if key != "rule"}
    return attrs.evolve(_construct(Selection, others, where), rule=table["rule"], recorded=recorded)


def _space(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key if "." in key else key.replace("-", "_"): plain(value) for key, value in values.items()}


def _dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table, not {shown(value)}")
    return dict(value)


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where} must be a list, not {shown(value)}")
    return list(value)
