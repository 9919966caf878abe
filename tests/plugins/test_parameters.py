"""A parameter is declared once, and means the same in Python, in a config file and on a command line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, ClassVar

import attrs
import click
import pytest
import tomli_w
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from wsl_toolkit.cli.options import ComponentCommand, given_values
from wsl_toolkit.components import Component
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.parameters import construct, param, parameters_of, values_of


@attrs.frozen(kw_only=True)
class Everything(Component):
    """One parameter of each type."""

    name: ClassVar[str] = "everything"
    role: ClassVar[str] = "generator"

    rate: float = param(0.5, help="a share", gt=0, le=1)
    size: int = param(3, help="a number", ge=1)
    shape: tuple[int, ...] = param((4, 5), help="several numbers", ge=1)
    weights: tuple[float, ...] | None = param(None, help="several shares, or none", ge=0)
    mode: str = param("fast", help="a choice", choices=["fast", "slow"])
    exact: bool = param(False, help="a switch")
    path: Path | None = param(None, help="a file, or none")


finite = st.floats(allow_nan=False, allow_infinity=False)
everything = st.builds(
    Everything,
    rate=st.floats(0, 1, exclude_min=True),
    size=st.integers(1, 10**12),
    shape=st.lists(st.integers(1, 10**6), max_size=4).map(tuple),
    weights=st.none() | st.lists(st.floats(0, 1e300), min_size=1, max_size=4).map(tuple),
    mode=st.sampled_from(["fast", "slow"]),
    exact=st.booleans(),
    path=st.none() | st.sampled_from([Path("a.csv"), Path("/b c/d")]),
)


@given(everything)
def test_values_survive_a_toml_file(component: Everything) -> None:
    plain = {key: value for key, value in values_of(component).items() if value is not None}
    assert construct(Everything, tomllib.loads(tomli_w.dumps(plain))) == component


@given(everything)
def test_values_survive_a_command_line(component: Everything) -> None:
    arguments = []
    for key, value in values_of(component).items():
        if value is not None:
            text = ",".join(map(repr, value)) if isinstance(value, list) else str(value)
            arguments += [f"--generator-{key}={text}"]
    if component.shape == ():
        return  # an empty list cannot be told from an option that was not given
    seen: dict[str, Any] = {}

    def callback(**options: Any) -> None:
        seen.update(given_values(options, "generator-", Everything))

    command = ComponentCommand("try", callback=callback, choose=lambda _: [("generator-", Everything)])
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert construct(Everything, seen) == component


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 0}, "everything: rate must be > 0, <= 1, not 0.0"),
        ({"rate": 1.5}, "rate must be > 0, <= 1, not 1.5"),
        ({"rate": "nan"}, "rate must be a finite number, not nan"),
        ({"rate": "half"}, "rate must be a number, not 'half'"),
        ({"rate": True}, "rate must be float, not True"),
        ({"rate": [1]}, "rate must be float, not [1]"),
        ({"size": 2.5}, "size must be a whole number, not 2.5"),
        ({"size": 0}, "size must be >= 1, not 0"),
        ({"shape": [3, 0]}, "shape must be >= 1, not 0"),
        ({"shape": "3,x"}, "shape must be a whole number, not 'x'"),
        ({"mode": "quick"}, "mode must be one of fast, slow, not 'quick'"),
        ({"mode": 3}, "mode must be text, not 3"),
        ({"exact": "perhaps"}, "exact must be true or false, not 'perhaps'"),
        ({"path": 3}, "path must be file, not 3"),
        ({"rat": 0.5}, "unknown parameter 'rat'. Did you mean 'rate'"),
        ({"zzz": 0.5}, "unknown parameter 'zzz'. It accepts rate, size, shape, weights, mode, exact, path."),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_range(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        construct(Everything, values)
    assert message in str(caught.value)


def test_python_construction_checks_ranges_too() -> None:
    with pytest.raises(ConfigError, match="rate must be > 0, <= 1, not 2"):
        Everything(rate=2)


def test_a_parameter_without_a_default_is_asked_for() -> None:
    @attrs.frozen(kw_only=True)
    class Demanding(Component):
        """It wants to be told."""

        name: ClassVar[str] = "demanding"
        rate: float = param(help="a share")

    with pytest.raises(ConfigError, match=r"demanding: parameter 'rate' is required \(a share\)"):
        construct(Demanding, {})
    assert parameters_of(Demanding)["rate"].required


def test_a_class_without_parameters_says_so() -> None:
    @attrs.frozen(kw_only=True)
    class Bare(Component):
        """Nothing to set."""

        name: ClassVar[str] = "bare"

    with pytest.raises(ConfigError, match="It has no parameters"):
        construct(Bare, {"rate": 1})


def test_names_with_dashes_are_names_with_underscores() -> None:
    @attrs.frozen(kw_only=True)
    class Long(Component):
        """A parameter of two words."""

        name: ClassVar[str] = "long"
        learning_rate: float = param(0.1, help="a rate")

    assert construct(Long, {"learning-rate": 1}) == Long(learning_rate=1.0)


def test_help_shows_meaning_range_and_default() -> None:
    command = ComponentCommand("try", callback=print, choose=lambda _: [("generator-", Everything)])
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "--generator-rate FLOAT a share [> 0, <= 1; default: 0.5]" in text
    assert "--generator-mode TEXT a choice [fast | slow; default: fast]" in text
    assert "several numbers [>= 1; default: 4,5]" in text
    assert isinstance(command, click.Command)
