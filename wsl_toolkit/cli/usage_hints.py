"""What a usage error could have meant: `wsl run ppl` means `wsl run --estimator ppl`."""

from __future__ import annotations

import re

import click

EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)


def with_hint(error: click.UsageError) -> click.UsageError:
    """Return an error that says which option takes an argument that a command does not, if a component has its name."""
    extra = EXTRA.fullmatch(error.message)
    if extra is None or error.ctx is None:
        return error
    options = {option for parameter in error.ctx.command.params for option in parameter.opts}
    # It imports components, which only who made this mistake waits for.
    from wsl_toolkit.components import ROLES
    from wsl_toolkit.plugins.loading import load_plugins

    registry = load_plugins().registry
    meant = [
        f"--{role} {name}"
        for name in extra[1].split()
        for role in ROLES
        if f"--{role}" in options and name in registry.names(role)
    ]
    if not meant:
        return error
    return click.UsageError(f"{error.message}. Did you mean {' or '.join(map(repr, meant))}?", error.ctx)
