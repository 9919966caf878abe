"""`wsl plugin list`, also `wsl plugins`: every plugin found, what it provides, and why it failed if it did."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from wsl_toolkit.cli.common import json_option
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.plugins.loading import PluginRecord, load_plugins, names_of, switched_off


@click.command("list")
@json_option
def list_plugins(as_json: bool) -> None:
    """List the installed plugins: version, components, failures and warnings.

    \b
    WSL_DISABLE_PLUGINS=a,b   switches plugins off, by entry point or distribution
    WSL_STRICT_PLUGINS=1      makes a broken plugin an error instead of setting it aside
    """
    records = load_plugins().records
    unknown = sorted(switched_off().difference(*(names_of(record) for record in records)))
    if as_json:
        print_json([describe(record) for record in records])
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("plugin", "from", "status", "components"):
        table.add_column(heading, no_wrap=heading in ("plugin", "status"))
    for record in records:
        table.add_row(record.name, f"{record.distribution} {record.version}", record.status, _components(record))
    out = console()
    out.print(table)
    for record in records:
        if record.failure:
            out.print(f"[bold red]failed[/]  {escape(str(record))}: {escape(record.failure)}")
        for warning in record.warnings:
            out.print(f"[bold yellow]warning[/] {escape(str(record))}: {escape(warning)}")
    for name in unknown:
        out.print(f"[bold yellow]warning[/] WSL_DISABLE_PLUGINS names {escape(repr(name))}, which is not installed")


def describe(record: PluginRecord) -> dict[str, Any]:
    """Return a plugin's facts for JSON."""
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "entry point": record.target,
        "status": record.status,
        "components": {role: list(names) for role, names in record.components.items()},
        "failure": record.failure,
        "warnings": list(record.warnings),
    }


def _components(record: PluginRecord) -> str:
    return "; ".join(f"{role}s: {', '.join(names)}" for role, names in record.components.items())
