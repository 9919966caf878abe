"""`wsl show ROLE NAME`: one component in full."""

from __future__ import annotations

import inspect
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from wsl_toolkit.cli.common import json_option
from wsl_toolkit.cli.complete import names_of_role
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.cli.options import RoleType
from wsl_toolkit.components import Component, Estimator, Generator
from wsl_toolkit.parameters import parameters_of, plain
from wsl_toolkit.plugins.loading import load_plugins


@click.command()
@click.argument("role", type=RoleType())
@click.argument("name", shell_complete=names_of_role)
@json_option
def show(role: str, name: str, as_json: bool) -> None:
    """Show one component: parameters, ranges, setting, citation, who provides it.

    \b
    Example:
      wsl show generator mcl-skewed
    """
    entry = load_plugins().registry.entry(role, name)
    cls = entry.cls
    facts = {
        "role": role,
        "name": name,
        "description": inspect.cleandoc(cls.__doc__ or ""),
        **claims(cls),
        "citation": cls.citation,
        "provided by": f"{entry.owner} (plugin {entry.owner.plugin})",
    }
    parameters = [
        {
            "name": p.name,
            "type": p.type_name,
            "default": None if p.required else plain(p.default),
            "range": p.bounds.describe(),
            "help": p.help,
        }
        for p in parameters_of(cls).values()
    ]
    if as_json:
        print_json({**facts, "parameters": parameters})
        return
    out = console()
    for key, value in facts.items():
        if value:
            out.print(f"[bold]{key}[/]: {escape(str(value))}")
    if parameters:
        table = Table(box=None, pad_edge=False)
        for heading in ("parameter", "type", "default", "range", "meaning"):
            table.add_column(heading)
        for row in parameters:
            table.add_row(*(escape("" if value is None else str(value)) for value in row.values()))
        out.print(table)
    else:
        out.print("It has no parameters.")


def claims(cls: type[Component]) -> dict[str, Any]:
    """Return what a component declares about the map of settings."""
    if issubclass(cls, Generator):
        return {"setting": str(cls.setting), "meaning": cls.setting.meaning}
    if issubclass(cls, Estimator):
        return {"promise": f"{cls.kind} in {cls.assumption}", "meaning": cls.assumption.meaning}
    return {}
