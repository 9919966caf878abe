"""A component as its class says that it wants to be tried: `contract = {"epochs": 30, "parameters": {"rate": 0.1}}`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from wsl_toolkit.components import Component
from wsl_toolkit.errors import WslError, did_you_mean
from wsl_toolkit.parameters import construct, parameters_of
from wsl_toolkit.testing.common import ComponentContract, not_applicable

PARAMETERS = "parameters"


def settings_of(contract: type[ComponentContract]) -> frozenset[str]:
    """Return what a contract can be told: the attributes that its classes annotate, but for the component itself."""
    names = {name for base in contract.__mro__ if base is not object for name in inspect.get_annotations(base)}
    return frozenset(names - {"component", "role"})


def made_as_declared(cls: type[Component], contract: ComponentContract, *, needs_defaults: bool = False) -> Any:
    """Return a component with the parameters that its class declares, and tell the contract the rest."""
    known = settings_of(type(contract))
    for name, value in cls.contract.items():
        if name not in known | {PARAMETERS}:
            hint = did_you_mean(name, [*known, PARAMETERS])
            pytest.fail(
                f"contract names {name!r}, which the contract of {cls.role}s does not know.{hint}", pytrace=False
            )
        if name != PARAMETERS:
            setattr(contract, name, value)
    given = cls.contract.get(PARAMETERS, {})
    missing = [each.name for each in parameters_of(cls).values() if each.required and each.name not in given]
    if missing and not needs_defaults:
        not_applicable(
            f"it has no default for {', '.join(missing)}: declare contract = {{'parameters': {{…}}}}, or test it with "
            "a contract class of your own"
        )
    try:
        return construct(cls, given)
    except (TypeError, WslError) as error:
        pytest.fail(f"it cannot be made: {error}", pytrace=False)
