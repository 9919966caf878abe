"""`wsl clean DATA`: the most likely true label of every example, judged by models that did not learn from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import force_option, is_quiet, json_option
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.cli.own_data import (
    DataCommand,
    budget_option,
    chooser,
    data_argument,
    inputs_of,
    raw_option,
    read_and_choose,
    training_options,
)
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import output_paths

if TYPE_CHECKING:
    import pandas as pd

EPILOG = """\b
Examples:
  wsl clean lost.mat --out lost-cleaned.csv
  wsl clean birds.csv --candidates-column species --out cleaned.csv --folds 10
The columns `review`, `ambiguous` and `suspicious` rank the examples: 1 is the first to look at.
"""


LISTS = {
    "ambiguous": "Ambiguous: the candidates are hard to tell apart",
    "suspicious": "Suspicious: the set probably misses the truth",
}
COLUMNS = {
    "id": "id",
    "label": "label",
    "confidence": "confidence",
    "candidates": "candidates",
    "predicted": "predicted",
    "missed_probability": "set misses it",
}
SHOWN = 5
"""Of each list, so many examples are shown."""


@click.command("clean", cls=DataCommand, choose=chooser(trains=True), epilog=EPILOG)
@data_argument
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A .csv, .parquet or .json file.")
@force_option
@raw_option
@click.option("--folds", type=click.IntRange(min=2), default=5, show_default=True, help="Parts of the data.")
@budget_option("quick")
@training_options
@json_option
def clean(data: Path, **options: Any) -> None:
    """Give every example its most likely label with a confidence, out of fold, and rank the examples for review.

    There are two lists: ambiguous examples, whose label is most likely wrong, and suspicious ones, whose set probably
    misses the truth. Known true labels are kept with --use-known-labels, and judge the others otherwise.
    """
    from wsl_toolkit.cli.progress import progress
    from wsl_toolkit.own_data import cleaning, result_files
    from wsl_toolkit.system.signals import listening

    result_files.check_ending(options["out"])
    output_paths.check_file(options["out"], inputs_of(data, options), force=options["force"])
    registry = load_plugins().registry
    loaded, chosen = read_and_choose(data, options)
    with progress(quiet=is_quiet()) as listener, listening() as stop:
        found = cleaning.clean(loaded, registry, chosen, folds=options["folds"], listener=listener, stop=stop)
    frame = cleaning.to_frame(loaded, found)
    result_files.write_frame(frame, options["out"], raw=options["raw"])
    summary = cleaning.summarise(loaded, found)
    if options["as_json"]:
        print_json({"out": str(options["out"]), "estimator": chosen.estimator.name, **summary})
    elif not is_quiet():
        _show(frame, summary, options["out"])


def _show(frame: pd.DataFrame, summary: dict[str, Any], out: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    screen = console()
    for name, value in summary.items():
        if value is not None and not isinstance(value, list):
            text = f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
            screen.print(f"[bold]{name.replace('_', ' ')}[/]: {text}")
    for remark in summary["remarks"]:
        screen.print(f"[bold yellow]![/] {escape(remark)}")
    for name, title in LISTS.items():
        table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False)
        for heading in COLUMNS.values():
            table.add_column(heading)
        # What the second list begins with is not shown twice.
        shown = frame if name == "suspicious" else frame[frame["missed_probability"] <= 0.5]
        for row in shown.sort_values(name).head(SHOWN).to_dict("records"):
            cells = (f"{row[c]:.3f}" if isinstance(row[c], float) else str(row[c]) for c in COLUMNS)
            table.add_row(*(escape(cell) for cell in cells))
        screen.print(table)
    screen.print(f"All {len(frame):,} examples are in {out}", markup=False)
