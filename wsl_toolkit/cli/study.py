"""`wsl study`: many runs from one description."""

from __future__ import annotations

import click

from wsl_toolkit.cli.group import LazyGroup

COMMANDS = {
    "run": ("wsl_toolkit.cli.study_run:run", "Run a study, or go on with one."),
    "resume": ("wsl_toolkit.cli.study_run:resume", "Go on with a study that was started here."),
    "status": ("wsl_toolkit.cli.study_status:status", "Say how far a study has come."),
    "list": ("wsl_toolkit.cli.study_status:list_studies", "List built-in studies and those started here."),
    "report": ("wsl_toolkit.cli.report:report", "The same as `wsl report`."),
}


@click.group("study", cls=LazyGroup, commands_by_name=COMMANDS)
def study() -> None:
    """Compare methods: settings x methods x search space x trials, selected without a clean label.

    \b
      wsl study run paper-table-3 --quick    a real small study on bundled data
      wsl study status paper-table-3-quick
      wsl report paper-table-3-quick
    """
