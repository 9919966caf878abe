"""`wsl list`: what is installed."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping

import click

from wsl_toolkit.cli.common import json_option
from wsl_toolkit.cli.console import print_json
from wsl_toolkit.cli.options import RoleType
from wsl_toolkit.components import ROLES, Estimator, Generator
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import Entry
from wsl_toolkit.training.schedules import SCHEDULES


@click.command("list")
@click.argument("role", required=False, type=RoleType())
@json_option
def list_components(role: str | None, as_json: bool) -> None:
    """List the installed components, of one ROLE or of all.

    \b
    Examples:
      wsl list
      wsl list estimators
    """
    plugins = load_plugins()
    registry = plugins.registry
    if failed := [record for record in plugins.records if record.failure]:
        what = str(failed[0]) if len(failed) == 1 else f"{len(failed)} plugins"
        click.echo(f"{what} could not be loaded: see `wsl plugins`", err=True)
    roles = [role] if role else list(ROLES)
    entries = {r: {name: registry.entry(r, name) for name in registry.names(r)} for r in roles}
    if as_json:
        print_json({r: {name: describe(entry) for name, entry in found.items()} for r, found in entries.items()})
        return
    for r, found in entries.items():
        click.secho(f"{r}s", bold=True)
        click.echo("\n".join(filter(None, (_table(found), BESIDE.get(r, "")))))


BESIDE = {
    "optimizer": "  and every optimiser of torch.optim, by its name in lower case\n",
    "scheduler": f"  and the toolkit's own: {', '.join(SCHEDULES)}\n",
}
"""What else a role has that is not a plugin's."""


def _table(found: Mapping[str, Entry]) -> str:
    """Return a line for each component, its summary wrapped beside name, setting and owner.

    By hand, because importing a library for tables would take a third of the command's time.
    """
    facts = [(name, _setting(entry), str(entry.owner)) for name, entry in found.items()]
    widths = [max((len(row[column]) for row in facts), default=0) for column in range(3)]
    lines = []
    for row, entry in zip(facts, found.values(), strict=True):
        head = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width) + "  "
        room = max(30, shutil.get_terminal_size().columns - len(head))
        lines += [
            (head if number == 0 else " " * len(head)) + line
            for number, line in enumerate(textwrap.wrap(entry.cls.summary(), room) or [""])
        ]
    return "\n".join([*lines, ""]) if lines else ""


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
