"""What holds for a component of any role, and the tools that contracts share."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from wsl_toolkit.components import Component
from wsl_toolkit.parameters import construct, parameters_of, values_of
from wsl_toolkit.plugins.registry import KEBAB
from wsl_toolkit.system.random_streams import global_streams
from wsl_toolkit.testing.plugin import NOT_APPLICABLE


class ComponentContract:
    """A name, a sentence, and parameters that survive the way through a configuration file."""

    component: Any
    is_wsl_contract = True

    def test_it_has_a_name_and_a_sentence_that_says_what_it_is(self, component: Component) -> None:
        """`wsl list` shows both."""
        assert KEBAB.fullmatch(component.name), f"the name {component.name!r} is not kebab-case"
        described = type(component).__doc__
        inherited = {base.__doc__ for base in type(component).__mro__[1:]}
        assert described not in (None, "", *inherited), (
            f"{type(component).__name__} has no docstring of its own; its first line is shown by `wsl list`"
        )

    def test_every_parameter_says_what_it_means(self, component: Component) -> None:
        """`--help` shows it."""
        for parameter in parameters_of(type(component)).values():
            assert parameter.help.strip(), f"parameter {parameter.name!r} has no help"

    def test_parameters_survive_a_configuration_file(self, component: Component) -> None:
        """A resolved configuration must build the same component again."""
        again = construct(type(component), values_of(component))
        assert again == component, f"built again from its own parameters it is {again}, not {component}"


def not_applicable(reason: str) -> NoReturn:
    """Skip a check that has nothing to check for this component, and say why: it neither passed nor failed."""
    pytest.skip(f"{NOT_APPLICABLE}: {reason}")


def stream(seed: int) -> torch.Generator:
    """Return a random stream at its beginning."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def global_randomness_untouched(what: str) -> Iterator[None]:
    """Fail if a block draws from torch's, numpy's or Python's global generator."""
    before = global_streams()
    yield
    after = global_streams()
    for name, old in before.items():
        assert old == after[name], f"{what} used {name}'s global random generator; use only what it is given"


def work_of(function: Callable[[], Any]) -> dict[str, int]:
    """Return how much a function does, by counts that no busy machine disturbs: tensor operations, lines of Python."""
    operations = _Operations()
    with operations:
        function()
    lines = 0

    def note(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return note

    before = sys.gettrace()
    gc.disable()
    sys.settrace(note)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return {"tensor operations": operations.count, "lines of Python": lines}


class _Operations(TorchDispatchMode):
    """Counts what reaches torch's dispatcher."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def not_finite(value: torch.Tensor) -> str:
    """Return 'NaN' or 'infinite' for a tensor that holds such a number, or an empty string."""
    if not value.is_floating_point() or bool(torch.isfinite(value).all()):
        return ""
    return "NaN" if bool(value.isnan().any()) else "infinite"


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are equal, where NaN equals NaN."""
    return one.shape == other.shape and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
