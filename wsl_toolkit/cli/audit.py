"""`wsl audit DATA`: can these candidate sets be learned from, and by what?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import force_option, is_quiet, json_option, seed_option, tell
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.cli.own_data import (
    DataCommand,
    chooser,
    data_argument,
    inputs_of,
    load_data,
    show_understood,
)
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import output_paths

if TYPE_CHECKING:
    from wsl_toolkit.own_data.audit.annotators import AnnotatorsReport
    from wsl_toolkit.own_data.audit.report import Audit

EPILOG = """\b
Examples:
  wsl audit lost.mat
  wsl audit birds.csv --candidates-column species
  wsl audit birds.csv --html audit.html
  wsl audit birds.csv --help        (shows the options of that format)
"""

COLOURS = {"refuted": "red", "not refuted": "green", "not testable": "dim"}


@click.command("audit", cls=DataCommand, choose=chooser(), epilog=EPILOG)
@data_argument
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a self-contained page with plots.")
@force_option
@seed_option("Seed of the simulations.")
@json_option
def audit(data: Path, **options: Any) -> None:
    """Count what is in the candidate sets, test every setting's assumption on them, and order the estimators."""
    from wsl_toolkit.cli.progress import steps
    from wsl_toolkit.own_data.audit import report

    if options["html"]:
        output_paths.check_file(options["html"], inputs_of(data, options), force=options["force"])
    with steps(("reading", *report.STEPS), quiet=is_quiet()) as begin:
        begin("reading")
        loaded = load_data(data, options)
        found = report.audit(loaded, load_plugins().registry, seed=options["seed"], on_step=begin)
    if options["html"]:
        from wsl_toolkit.own_data.audit.page import page
        from wsl_toolkit.system.files import write_atomically

        write_atomically(options["html"], page(found))
    if options["as_json"]:
        understood = None if loaded.understood is None else loaded.understood.to_dict()
        print_json({**found.to_dict(), "understood": understood})
        return
    show_understood(loaded, console())
    show(found)
    if options["html"]:
        tell(f"The page is {options['html']}")


def show(found: Audit) -> None:
    """Print the audit for people."""
    from rich.markup import escape
    from rich.table import Table

    from wsl_toolkit.own_data.audit.report import p_text, summary_lines

    out = console()
    facts = Table(title=escape(found.name), title_justify="left", show_header=False, box=None, pad_edge=False)
    for name, value in summary_lines(found).items():
        facts.add_row(f"[bold]{name}[/]", escape(value))
    out.print(facts)
    for note in found.notes:
        out.print(f"[bold yellow]![/] {escape(note)}")
    settings = Table(title="\nWhich assumptions hold", title_justify="left", box=None, pad_edge=False)
    for heading in ("setting", "verdict", "why"):
        settings.add_column(heading, no_wrap=heading != "why")
    for setting, (verdict, why) in found.verdicts.items():
        settings.add_row(str(setting), f"[{COLOURS[verdict]}]{verdict}[/]", escape(why))
    out.print(settings)
    tests = Table(title="\nTests", title_justify="left", box=None, pad_edge=False)
    for heading in ("setting", "p-value", "question", "finding"):
        tests.add_column(heading, no_wrap=heading in ("setting", "p-value"))
    for check in found.checks:
        colour = COLOURS[check.verdict]
        tests.add_row(
            str(check.setting), f"[{colour}]{p_text(check.p_value)}[/]", escape(check.question), escape(check.words)
        )
    out.print(tests)
    if found.annotators is not None:
        show_annotators(found.annotators)
    order = Table(title="\nEstimators, best first", title_justify="left", box=None, pad_edge=False)
    for heading in ("estimator", "fit", "why"):
        order.add_column(heading, no_wrap=heading != "why")
    for choice in found.recommendations:
        order.add_row(choice.estimator, choice.fit, escape(choice.why))
    out.print(order)


def show_annotators(found: AnnotatorsReport) -> None:
    """Print what is said of the annotators."""
    from rich.markup import escape
    from rich.table import Table

    from wsl_toolkit.own_data.audit.report import NEXT, PAIRS, PEOPLE, next_rows, pair_rows, people_rows

    parts = (
        ("Annotators (95 % intervals)", PEOPLE, people_rows(found)),
        ("How they agree", PAIRS, pair_rows(found)),
        ("To look at next (expected fall of the entropy)", NEXT, next_rows(found)),
    )
    for title, headings, rows in parts:
        if rows:
            table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
            for heading in headings:
                table.add_column(heading)
            for row in rows:
                table.add_row(*map(escape, row))
            console().print(table)
