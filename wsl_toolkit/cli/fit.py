"""`wsl fit DATA --out MODEL`: a classifier from a user's own candidate sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import is_quiet, json_option, tracking_uri_option
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.cli.own_data import (
    DataCommand,
    chooser,
    data_argument,
    force_option,
    inputs_of,
    read_and_choose,
    show_understood,
    training_options,
)
from wsl_toolkit.plugins.loading import load_plugins

if TYPE_CHECKING:
    from wsl_toolkit.data.dataset import Data
    from wsl_toolkit.own_data.fitting import FitOptions, Fitted, HeldOut
    from wsl_toolkit.own_data.model_file import Model

EPILOG = """\b
Examples:
  wsl fit lost.mat --out lost-model
  wsl fit birds.csv --candidates-column species --out bird-model --backbone mlp
  wsl predict bird-model new-birds.csv
  mlflow models serve -m bird-model --env-manager local
"""


@click.command("fit", cls=DataCommand, choose=chooser(trains=True), epilog=EPILOG)
@data_argument
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to write the model to.")
@force_option
@training_options
@click.option("--refit", is_flag=True, help="After the report, train on all examples with the chosen settings.")
@click.option("--no-track", is_flag=True, help="Do not record the fit in MLflow.")
@tracking_uri_option
@click.option("--experiment", help="MLflow experiment.  [default: wsl-<data>]")
@json_option
def fit(data: Path, **options: Any) -> None:
    """Train a classifier, report how it does on held-out examples, and write a model that takes raw rows.

    The estimator is the audit's first choice, learning rate and weight decay are selected by approximated accuracy on
    held-out partial labels. True labels, where some are known, are read for the report alone.
    """
    from wsl_toolkit.cli.progress import progress
    from wsl_toolkit.own_data import fitting, model_file, serving
    from wsl_toolkit.system.signals import listening

    serving.check_free(options["out"], inputs_of(data, options), force=options["force"])
    registry = load_plugins().registry
    loaded, chosen = read_and_choose(data, options, refit=options["refit"])
    if not is_quiet():
        show_understood(loaded, console(stderr=True))
    with progress(quiet=is_quiet()) as listener, listening() as stop:
        fitted, report = fitting.fit_and_report(loaded, registry, chosen, listener, stop)
    about = {**fitting.describe(chosen, fitted), "held_out": report.to_dict()}
    about["input_dtype"] = str(loaded.x.dtype).removeprefix("torch.")
    if loaded.understood is not None and loaded.understood.dialect is not None:
        about["dialect"] = loaded.understood.dialect.to_dict()
    if options.get("sheet"):
        about["sheet"] = options["sheet"]
    model = model_file.model_from(fitted, loaded, about)
    serving.write_folder(model, options["out"], loaded.x[:2], force=options["force"])
    run_id = None if options["no_track"] else _track(options, data, model, loaded)
    if options["as_json"]:
        understood = None if loaded.understood is None else loaded.understood.to_dict()
        found = {"model": str(options["out"]), "run_id": run_id, **about, "class_names": list(model.class_names)}
        print_json({**found, "understood": understood})
    elif not is_quiet():
        _show(options["out"], chosen, fitted, report, run_id)


def _track(options: dict[str, Any], data: Path, model: Model, loaded: Data) -> str:
    """Record the fit in MLflow with the model, which serves as it is."""
    from wsl_toolkit.own_data.serving import record_fit
    from wsl_toolkit.runs.tracking.store import Tracker, choose_uri

    tracker = Tracker(choose_uri(options["tracking_uri"]), options["experiment"] or f"wsl-{data.stem}")
    return record_fit(tracker, model, loaded.x[:2], data.name, loaded.digest())


def _show(out: Path, chosen: FitOptions, fitted: Fitted, report: HeldOut, run_id: str | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{chosen.estimator.name} with {chosen.backbone.name}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("held-out examples", f"{report.examples:,}")
    table.add_row("covering rate", f"{report.covering_rate:.4f}")
    table.add_row("approximated accuracy", f"{report.approximated_accuracy:.4f}")
    if report.accuracy is not None:
        table.add_row(f"accuracy ({report.known_labels:,} known true labels)", f"{report.accuracy:.4f}")
    training = fitted.training
    table.add_row("learning rate, weight decay", f"{training.lr:g}, {training.weight_decay:g}")
    table.add_row("epochs, batch size", f"{training.epochs}, {training.batch_size}")
    screen = console()
    screen.print(table)
    screen.print(f"The model is in {escape(str(out))}: `wsl predict {escape(str(out))} DATA` uses it,")
    screen.print(f"and `mlflow models serve -m {escape(str(out))} --env-manager local` serves it.")
    if run_id:
        screen.print(f"tracked as run {run_id}")
