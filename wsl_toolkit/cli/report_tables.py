"""A report on the terminal: rich tables."""

from __future__ import annotations

from rich import table as rich_table
from rich.console import Console
from rich.markup import escape

from wsl_toolkit.cli.console import console
from wsl_toolkit.studies.report.build import Report
from wsl_toolkit.studies.report.tables import Table

DETAILS = ("p-values", "protocol")
"""Tables that a summary at the end of a study leaves to `wsl report` and the files."""


def print_report(report: Report, out: Console | None = None, *, brief: bool = False) -> None:
    """Print the tables, in brief without those of details."""
    out = out or console()
    out.print(f"\n[bold]{escape(report.title)}[/bold]\n{escape(report.standing)}\n")
    for table in report.tables:
        if brief and table.key in DETAILS:
            continue
        out.print(_rich(table))
        out.print(f"[dim]{escape(table.note)}[/dim]\n")


def _rich(table: Table) -> rich_table.Table:
    drawn = rich_table.Table(title=escape(table.title), title_justify="left")
    for place, column in enumerate(table.columns):
        drawn.add_column(escape(column), justify="left" if place < table.labels else "right", overflow="fold")
    for row in table.rows:
        # Bold is marked with a star too: pipes and screen readers have no bold.
        drawn.add_row(*(f"[bold]{escape(e.text)} *[/bold]" if e.bold else escape(e.text) for e in row))
    return drawn
