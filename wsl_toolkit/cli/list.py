"""`wsl list`: what is installed."""

from __future__ import annotations

import click
from rich.table import Table

from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.components import ROLES, Estimator, Generator
from wsl_toolkit.plugins import load_plugins
from wsl_toolkit.registry import Entry


@click.command("list")
@click.argument("role", required=False, type=click.Choice(list(ROLES)))
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def list_components(role: str | None, as_json: bool) -> None:
    """List the installed components, of one ROLE or of all."""
    plugins = load_plugins()
    registry = plugins.registry
    if failed := [record for record in plugins.records if record.failure]:
        what = str(failed[0]) if len(failed) == 1 else f"{len(failed)} plugins"
        console(stderr=True).print(f"{what} could not be loaded: see `wsl plugins`", markup=False)
    roles = [role] if role else list(ROLES)
    entries = {r: {name: registry.entry(r, name) for name in registry.names(r)} for r in roles}
    if as_json:
        print_json({r: {name: describe(entry) for name, entry in found.items()} for r, found in entries.items()})
        return
    out = console()
    for r, found in entries.items():
        table = Table(title=f"{r}s", title_justify="left", box=None, pad_edge=False)
        for heading in ("name", "setting" if r in ("generator", "estimator") else "", "what it is", "from"):
            table.add_column(heading, no_wrap=heading in ("name", "setting"))
        for name, entry in found.items():
            table.add_row(name, _setting(entry), entry.cls.summary(), str(entry.owner))
        out.print(table)
        out.print()


def describe(entry: Entry) -> dict[str, str]:
    """Return a component's facts for JSON."""
    facts = {
        "summary": entry.cls.summary(),
        "citation": entry.cls.citation,
        "distribution": entry.owner.distribution,
        "version": entry.owner.version,
    }
    if setting := _setting(entry):
        facts["setting"] = setting
    return facts


def _setting(entry: Entry) -> str:
    if issubclass(entry.cls, Generator):
        return str(entry.cls.setting)
    return str(entry.cls.assumption) if issubclass(entry.cls, Estimator) else ""
