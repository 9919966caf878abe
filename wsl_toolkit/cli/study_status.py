"""`wsl study status` and `wsl study list`: from the folders alone, without MLflow."""

from __future__ import annotations

import attrs
import click

from wsl_toolkit.cli.common import json_option
from wsl_toolkit.cli.complete import started_studies
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.reading import builtin_studies
from wsl_toolkit.studies.status import HOME, started_study, status_row
from wsl_toolkit.studies.store import known_studies


@click.command("status")
@click.argument("study", metavar="NAME", shell_complete=started_studies)
@json_option
def status(study: str, as_json: bool) -> None:
    """Say which cells are complete, which are under way, and whether anybody works on them."""
    from wsl_toolkit.studies.codes import other_code
    from wsl_toolkit.studies.driver import study_states

    folder, description = started_study(study)
    registry = load_plugins().registry
    states = study_states(description, folder, registry)
    other = other_code(states, folder, registry)
    rows = [status_row(state) for state in states]
    working = folder.is_running()
    if as_json:
        print_json({"study": study, "running": working, "cells": rows, "other_code": attrs.asdict(other)})
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(description.title or study), title_justify="left")
    for heading in ("setting", "method", "runs", "chosen", "state"):
        table.add_column(heading, justify="right" if heading == "runs" else "left")
    for row in rows:
        cells = (row["setting"], row["method"], f"{row['done']}/{row['planned']}", row["chosen"], row["state"])
        table.add_row(*(escape(str(cell)) for cell in cells))
    out = console()
    out.print(table)
    done, planned = (sum(row[key] for row in rows) for key in ("done", "planned"))
    complete = all(state.done for state in states)
    now = "complete" if complete else "being run" if working else f"not running: `wsl study resume {study}` goes on"
    out.print(f"{done} of {planned} runs done; {now}")
    if other.results:
        out.print(f"{other.sentence} (`wsl study run` and `resume` compute anew, --keep-old does not):")
        for line in other.changes:
            out.print(f"  {line}", markup=False)


@click.command("list")
@json_option
def list_studies(as_json: bool) -> None:
    """List the built-in studies and those that were started in this directory."""
    builtin = {name: str(values.get("title", "")) for name, values in builtin_studies().items()}
    started = known_studies(HOME)
    if as_json:
        print_json({"builtin": builtin, "started": started})
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="Built in (`wsl study run NAME`)", title_justify="left", show_header=False)
    for name, title in builtin.items():
        table.add_row(name, escape(title))
    out = console()
    out.print(table)
    out.print(f"Started here: {', '.join(started) or 'none'}")
