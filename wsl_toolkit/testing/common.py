"""What holds for a component of any role, and the tools that contracts share."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
import torch

from wsl_toolkit.components import Component
from wsl_toolkit.parameters import construct, parameters_of, values_of
from wsl_toolkit.plugins.registry import KEBAB
from wsl_toolkit.testing.plugin import NOT_APPLICABLE


class ComponentContract:
    """A name, a sentence, and parameters that survive the way through a configuration file."""

    component: Any

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
    import random

    import numpy as np

    def states() -> tuple[bytes, bytes, str]:
        # The legacy generator is exactly the one that must not be used, so its state is what is looked at.
        legacy = np.random.get_state()  # noqa: NPY002
        return torch.get_rng_state().numpy().tobytes(), repr(legacy).encode(), repr(random.getstate())

    before = states()
    yield
    after = states()
    for name, old, new in zip(("torch", "numpy", "Python"), before, after, strict=True):
        assert old == new, f"{what} used {name}'s global random generator; use only what it is given"


def python_calls(function: Callable[[], Any]) -> int:
    """Return how many calls the interpreter makes in a function: a measure of work that no busy machine disturbs."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count
