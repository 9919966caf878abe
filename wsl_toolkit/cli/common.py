"""Options that several commands share, declared once so that they look and mean the same everywhere."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from wsl_toolkit.cli.console import printable

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

QUIET, VERBOSE = "wsl.quiet", "wsl.verbose"
"""Where a command's context keeps how much the user wants to hear."""

json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")

tracking_uri_option: Decorator = click.option(
    "--tracking-uri", help="MLflow store.  [default: MLFLOW_TRACKING_URI, else wsl-runs/mlflow.db]"
)

device_option: Decorator = click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, mps"
)


def data_dir_option(help_text: str = "Where datasets are kept.") -> Decorator:
    """Return --data-dir, with what is looked for there."""
    return click.option(
        "--data-dir",
        envvar="WSL_DATA_DIR",
        type=click.Path(path_type=Path),
        default=Path("data"),
        show_default=True,
        show_envvar=True,
        help=help_text,
    )


def seed_option(help_text: str) -> Decorator:
    """Return --seed, with what is drawn from it."""
    return click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help=help_text)


def add_common_options(command: click.Command) -> click.Command:
    """Give a command -q/--quiet and -v/--verbose, unless it has one of them already."""
    known = {flag for param in command.params for flag in param.opts}
    for flag, short, key, text in (
        ("--quiet", "-q", QUIET, "No progress and no summary: warnings, errors, and what was asked for."),
        ("--verbose", "-v", VERBOSE, "Say more: tracebacks of errors, and what it took."),
    ):
        if flag not in known:
            command.params.append(
                click.Option(
                    [flag, short], is_flag=True, expose_value=False, is_eager=True, help=text, callback=_keep(key)
                )
            )
    return command


def _keep(key: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[key] = True
            if key == QUIET and not sys.warnoptions:
                # Libraries' advice to programmers (torch's, say); our own warnings do not go through this module.
                ctx.with_resource(warnings.catch_warnings(action="ignore"))
                ctx.with_resource(_quiet_children())

    return keep


@contextlib.contextmanager
def _quiet_children() -> Iterator[None]:
    """Have processes that are started meanwhile (a study's workers) ignore such advice, too."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore"
    try:
        yield
    finally:
        os.environ.pop("PYTHONWARNINGS") if before is None else os.environ.update(PYTHONWARNINGS=before)


def is_quiet() -> bool:
    """Whether the command at work was asked for no progress and no summary."""
    return _wants(QUIET)


def is_verbose() -> bool:
    """Whether the command at work was asked to say more."""
    return _wants(VERBOSE)


def _wants(key: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(key))


def tell(text: str) -> None:
    """Say what was done, on standard error, to those who did not ask for quiet."""
    if not is_quiet():
        click.echo(printable(text), err=True)


force_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--force", is_flag=True, help="Replace what an earlier call wrote."
)
