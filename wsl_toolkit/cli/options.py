"""Component parameters as command-line options: one definition, shown by `--help` of the command that uses it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from wsl_toolkit.components import ROLES
from wsl_toolkit.errors import ConfigError, WslError
from wsl_toolkit.parameters import Parameter, coerce, parameters_of, plain

GIVEN = "wsl.component_options"


class ParameterType(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """Parses an option with the same rules as a config file."""

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        self.name = parameter.type_name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Turn text into the parameter's type and check its range, or fail with the option's name."""
        try:
            result = coerce(value, self.parameter.type, "the value")
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        for item in result if isinstance(result, tuple) else (result,):
            problem = None if item is None else self.parameter.bounds.refuse(item)
            if problem:
                self.fail(f"{item!r} {problem}", param, ctx)
        return result

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer the choices, where there are some."""
        return [
            CompletionItem(choice) for choice in self.parameter.bounds.choices or () if choice.startswith(incomplete)
        ]


def component_options(cls: type, prefix: str) -> list[click.Option]:
    """Return one option for each parameter, '--<prefix><name>'; not given means None, so that a file may speak."""
    options = []
    for parameter in parameters_of(cls).values():
        flag = f"--{prefix}{parameter.name.replace('_', '-')}"
        notes = [note for note in (parameter.bounds.describe(), _default_note(parameter)) if note]
        help_text = f"{parameter.help}  [{'; '.join(notes)}]" if notes else parameter.help
        # `--dataset-download` alone means yes.
        alone: dict[str, Any] = {"is_flag": False, "flag_value": "yes"} if parameter.type is bool else {}
        options.append(
            click.Option(
                [flag, f"{prefix.replace('-', '_')}{parameter.name}"],
                type=ParameterType(parameter),
                metavar=parameter.type_name.upper().replace(" ", "-"),
                help=help_text,
                **alone,
            )
        )
    return options


def _default_note(parameter: Parameter) -> str:
    """Return what the help adds about a default: nothing where there is none, or where its own words say it."""
    default = parameter.default
    if parameter.required or default is None or default == () or "[default: " in parameter.help:
        return ""
    return f"default: {','.join(map(str, default)) if isinstance(default, tuple) else plain(default)}"


class RoleType(click.Choice):  # type: ignore[type-arg]  # generic only in newer clicks
    """A role of components, in the singular or the plural."""

    def __init__(self) -> None:
        super().__init__(list(ROLES))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take `estimators` for `estimator`."""
        singular = value.removesuffix("s") if isinstance(value, str) else value
        return super().convert(singular if singular in ROLES else value, param, ctx)


class ComponentCommand(click.Command):
    """A command whose options depend on the components that its own arguments name.

    `choose(args)` looks at the raw arguments and returns (prefix, component class) pairs; their parameters become
    options of this invocation, in `--help` too.
    """

    def __init__(
        self, *args: Any, choose: Callable[[Sequence[str]], Sequence[tuple[str, type]]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.choose = choose

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add the chosen components' options, then parse as usual."""
        # A shell that completes a line knows only part of it, and must not be told what is wrong with that part.
        with contextlib.suppress(*([WslError] if ctx.resilient_parsing else [])):
            ctx.meta[GIVEN] = [option for prefix, cls in self.choose(args) for option in component_options(cls, prefix)]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters and the chosen components'."""
        own = super().get_params(ctx)
        return [*own[:-1], *ctx.meta.get(GIVEN, ()), *own[-1:]]


def peek(args: Sequence[str], flag: str) -> str | None:
    """Return the value of '--flag VALUE' or '--flag=VALUE' in raw arguments, the last one given."""
    return next(reversed(peek_all(args, flag)), None)


def peek_all(args: Sequence[str], flag: str) -> list[str]:
    """Return the values of a flag that may be repeated, in order."""
    found = []
    for position, arg in enumerate(args):
        if arg == flag and position + 1 < len(args):
            found.append(args[position + 1])
        elif arg.startswith(f"{flag}="):
            found.append(arg.partition("=")[2])
    return found


def given_values(options: Mapping[str, Any], prefix: str, cls: type) -> dict[str, Any]:
    """Return the component parameters that were given on the command line, by parameter name."""
    key = prefix.replace("-", "_")
    values = {name: options.get(f"{key}{name}") for name in parameters_of(cls)}
    return {name: value for name, value in values.items() if value is not None}
