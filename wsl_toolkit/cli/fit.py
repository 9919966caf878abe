"""`wsl fit DATA --out MODEL`: a classifier from a user's own candidate sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import force_option, is_quiet, json_option, tracking_uri_option
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.cli.own_data import (
    DataCommand,
    budget_option,
    chooser,
    data_argument,
    inputs_of,
    read_and_choose,
    show_understood,
    training_options,
)
from wsl_toolkit.plugins.loading import load_plugins

if TYPE_CHECKING:
    from wsl_toolkit.own_data.fit_record import FitRecord
    from wsl_toolkit.own_data.fitting import Fitted
    from wsl_toolkit.own_data.held_out import HeldOut

EPILOG = """\b
Examples:
  wsl fit lost.mat --out lost-model
  wsl fit birds.csv --candidates-column species --out bird-model --backbone mlp
  wsl predict bird-model new-birds.csv
  mlflow models serve -m bird-model --env-manager local
"""

MOST_TRIED = 8
LAW_WORDS = {
    "uniform": "nothing to learn about which candidate is true",
    "set": "the same sets come again and again, which says nothing about which candidate is true",
    "inputs": "the inputs show them beyond the class, and no law of the class is learned",
    "class": "some classes are noted down more readily than others",
    "pair": "some classes are noted down for certain others",
}


@click.command("fit", cls=DataCommand, choose=chooser(trains=True), epilog=EPILOG)
@data_argument
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to write the model to.")
@force_option
@budget_option("normal")
@training_options
@click.option("--refit", is_flag=True, help="After the report, train on all examples with the chosen settings.")
@click.option(
    "--example-rows",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Put the data's first N rows into the model as its example.  [default: none; a made-up row]",
)
@click.option("--no-track", is_flag=True, help="Do not record the fit in MLflow.")
@tracking_uri_option
@click.option("--experiment", help="MLflow experiment.  [default: wsl-<data>]")
@json_option
def fit(data: Path, **options: Any) -> None:
    """Train a classifier, report how it does on held-out examples, and write a model that takes raw rows.

    What is tried follows from the data and --budget: a linear model, perceptrons and gradient-boosted trees for tables,
    a linear model and a small convolutional network with augmentation for images. Held-out candidate sets choose: the
    average of models that makes them likeliest or, where data are many or images or --backbone is given, one model.
    Networks learn by the audit's first choice of an estimator. True labels, where some are known, are read for the
    report alone, unless --use-known-labels is given.
    """
    from wsl_toolkit.cli.progress import progress
    from wsl_toolkit.own_data import fitting, model_file, serving
    from wsl_toolkit.own_data.description import title
    from wsl_toolkit.own_data.fit_record import FitRecord
    from wsl_toolkit.own_data.learning import own_candidates
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
    shows = not options["as_json"] and not is_quiet()
    if shows:  # writing and tracking take seconds of their own
        _show_report(fitted, title(about), report)
    model = model_file.model_from(fitted, loaded, about)
    rows = options["example_rows"]
    example = serving.raw_rows(model, loaded.x[:rows]) if rows else serving.made_up_rows(model)
    serving.write_folder(model, options["out"], example, force=options["force"])
    record = FitRecord.of(model, loaded, own_candidates(loaded), report, fitted.seconds)
    run_id = None if options["no_track"] else _track(options, data, record, example, loaded.digest())
    if options["as_json"]:
        understood = None if loaded.understood is None else loaded.understood.to_dict()
        found = {"model": str(options["out"]), "run_id": run_id, **about, "class_names": list(model.class_names)}
        print_json({**found, "understood": understood})
    elif shows:
        _show_written(options["out"], run_id)


def _track(options: dict[str, Any], data: Path, record: FitRecord, example: Any, digest: str) -> str:
    """Record the fit in MLflow with the model, which serves as it is."""
    from wsl_toolkit.own_data.serving import record_fit
    from wsl_toolkit.runs.tracking.store import Tracker, choose_uri

    tracker = Tracker(choose_uri(options["tracking_uri"]), options["experiment"] or f"wsl-{data.stem}")
    return record_fit(tracker, record, example, data.name, digest)


def _show_report(fitted: Fitted, chosen: str, report: HeldOut) -> None:
    from rich.table import Table

    screen = console()
    _show_tried(fitted, chosen)
    table = Table(title="On held-out examples", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rows = {"examples": f"{report.examples:,}"}
    if report.accuracy is not None:
        rows[f"accuracy ({report.known_labels:,} known true labels)"] = f"{report.accuracy:.4f}"
    rows["covering rate"] = f"{report.covering_rate:.4f}"
    rows["log loss of the sets"] = f"{report.set_log_loss:.4f}"
    rows["temperature"] = f"{fitted.temperature:.3f}"
    if report.calibration_error is not None and report.calibration_error_before is not None:
        before, after = report.calibration_error_before, report.calibration_error
        rows["calibration error before, after"] = f"{before:.4f}, {after:.4f}"
    if fitted.change is not None:
        rows["mean set size before, after the transform"] = (
            f"{fitted.change.size_before:.2f}, {fitted.change.size_after:.2f}"
        )
        if fitted.change.true_label_kept is not None:
            rows["true labels that the transform kept"] = f"{fitted.change.true_label_kept:.4f}"
    rows["time"] = f"{fitted.seconds:.1f} s"
    for name, value in rows.items():
        table.add_row(name, value)
    screen.print(table)


def _show_written(out: Path, run_id: str | None) -> None:
    from rich.markup import escape

    screen = console()
    screen.print(f"The model is in {escape(str(out))}: `wsl predict {escape(str(out))} DATA` uses it,")
    screen.print(f"and `mlflow models serve -m {escape(str(out))} --env-manager local` serves it.")
    if run_id:
        screen.print(f"tracked as run {run_id}")


def _show_tried(fitted: Fitted, chosen: str) -> None:
    """Print what was tried, the best first, and why it was chosen."""
    from rich.markup import escape
    from rich.table import Table

    screen = console()
    order = sorted(fitted.tried, key=lambda each: each["set_log_loss"])
    if order:
        table = Table(title="What was tried", title_justify="left", box=None, pad_edge=False)
        for heading in ("model", "settings", "log loss of held-out sets"):
            table.add_column(heading)
        for each in order[:MOST_TRIED]:
            own = {k: v for k, v in each.items() if k not in ("model", "set_log_loss", "temperature")}
            settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in own.items())
            table.add_row(each["model"], escape(settings), f"{each['set_log_loss']:.4f}")
        screen.print(table)
        if len(order) > MOST_TRIED:
            screen.print(f"… and {len(order) - MOST_TRIED} more (--json shows all)")
    for name, why in fitted.left_out:
        screen.print(f"{name}: {why}", markup=False)
    if fitted.laws:
        law, losses = fitted.laws[0][0], ", ".join(f"{name} {loss:.4f}" for name, loss in fitted.laws)
        screen.print(f"how sets come about: {LAW_WORDS[law]} (trees by law, log loss of held-out sets: {losses})")
    told = chosen
    if len(order) > 1:
        told += f": of {len(order)} choices it makes held-out candidate sets likeliest"
    screen.print(f"[bold]chosen[/]: {escape(told)}")
