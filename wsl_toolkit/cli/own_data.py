"""What `wsl audit`, `fit`, `clean` and `predict` share: DATA as an argument whose ending chooses the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import data_dir_option, device_option, is_quiet, seed_option
from wsl_toolkit.cli.complete import component_names
from wsl_toolkit.cli.options import ComponentCommand, given_values, peek
from wsl_toolkit.components import Component
from wsl_toolkit.data.formats import sources
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.parameters import parameters_of
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.config import DEFAULT_COMPONENTS, Training

if TYPE_CHECKING:
    from rich.console import Console

    from wsl_toolkit.data.dataset import Data
    from wsl_toolkit.own_data.fitting import FitOptions

FLAGS = frozenset(
    {
        "--json",
        "--quiet",
        "-q",
        "--verbose",
        "-v",
        "--help",
        "-h",
        "--refit",
        "--no-track",
        "--force",
        "--raw",
        "--use-known-labels",
        "--calibrate",
        "--no-calibrate",
    }
)
"""Options that take no value, so that the argument after one of them is not mistaken for its value."""


SKLEARN = "sklearn:"
"""What the name of a scikit-learn model begins with, which is no component."""

BUDGETS = ("quick", "normal", "thorough")

MOST_SHOWN = 30
"""Of columns and classes, so many are shown."""


class DataCommand(ComponentCommand):
    """A command on DATA: the options of the dataset that reads it join the command's own, without a prefix."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters except the path, which is the argument itself."""
        return [option for option in super().get_params(ctx) if "--path" not in option.opts]


def positionals(args: Sequence[str]) -> list[str]:
    """Return the raw arguments that are neither options nor values of options."""
    found: list[str] = []
    takes_value = False
    for arg in args:
        if takes_value:
            takes_value = False
        elif arg.startswith("-") and arg != "-":
            takes_value = "=" not in arg and arg not in FLAGS
        else:
            found.append(arg)
    return found


def chooser(place: int = 0, *, trains: bool = False) -> Callable[[Sequence[str]], list[tuple[str, type[Component]]]]:
    """Return a function that reads off the raw arguments which components' options are wanted."""

    def choose(args: Sequence[str]) -> list[tuple[str, type[Component]]]:
        registry = load_plugins().registry
        chosen: list[tuple[str, type[Component]]] = []
        paths = positionals(args)
        if len(paths) > place:
            chosen.append(("", sources.reader_of(Path(paths[place]), registry)))
        if trains:
            for role in ("estimator", "backbone", "transform"):
                name = peek(args, f"--{role}") or (DEFAULT_COMPONENTS[role] if role == "backbone" else None)
                if name is not None and not name.startswith(SKLEARN):
                    chosen.append((f"{role}-", registry.get(role, name)))
        return chosen

    return choose


def load_data(path: Path, options: dict[str, Any]) -> Data:
    """Read DATA with the options that were given for its format."""
    registry = load_plugins().registry
    values = given_values(options, "", sources.reader_of(path, registry))
    values.pop(sources.PATH, None)
    if values.get("imbalance", 1.0) != 1:
        raise ConfigError(
            "--imbalance thins what is trained on to study a method (wsl run, wsl study), not your own data"
        )
    return sources.load(path, values, registry, options["data_dir"])


def inputs_of(path: Path, options: dict[str, Any]) -> list[Path]:
    """Return the files and folders that a command reads: DATA, here or in the data directory, and those of options."""
    values = given_values(options, "", sources.reader_of(path, load_plugins().registry))
    values.pop(sources.PATH, None)
    named = [value for value in values.values() if isinstance(value, Path)]
    return [place for name in (path, *named) for place in (name, options["data_dir"] / name)]


def chosen_component(options: dict[str, Any], role: str) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the given parameters of a role, or None if it was left open."""
    name = options[role]
    if name is None and role == "backbone":
        default = DEFAULT_COMPONENTS[role]
        values = given_values(options, f"{role}-", load_plugins().registry.get(role, default))
        return (default, values) if values else None
    if name is None:
        return None
    if name.startswith(SKLEARN):
        from wsl_toolkit.own_data.trees import NAME

        if name != NAME or role != "backbone":
            raise click.UsageError(f"of scikit-learn's models, {NAME} can be written without a pickle: choose that one")
        return name, {}
    return name, given_values(options, f"{role}-", load_plugins().registry.get(role, name))


def show_understood(data: Data, screen: Console) -> None:
    """Print what was made of a user's table: how it was read, its columns and classes, and what looks wrong."""
    from rich.markup import escape
    from rich.table import Table

    understood = data.understood
    if understood is None:
        return
    for remark in understood.remarks:
        screen.print(escape(remark))
    columns = Table(title="What each column is", title_justify="left", box=None, pad_edge=False)
    for heading in ("column", "role", ""):
        columns.add_column(heading)
    for column in understood.columns[:MOST_SHOWN]:
        columns.add_row(escape(column.name), column.role, escape(column.detail))
    screen.print(columns)
    _count_rest(screen, len(understood.columns), "columns")
    shown = ", ".join(f"{name} ({count:,})" for name, count in understood.classes[:MOST_SHOWN])
    if shown:
        screen.print(f"[bold]classes, and how many sets hold each[/]: {escape(shown)}")
        _count_rest(screen, len(understood.classes), "classes")
    for warning in understood.warnings:
        screen.print(f"[bold yellow]![/] {escape(warning)}")


def _count_rest(screen: Console, count: int, what: str) -> None:
    if count > MOST_SHOWN:
        screen.print(f"… and {count - MOST_SHOWN:,} more {what} (--json shows all)")


def data_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add DATA and --data-dir."""
    command = data_dir_option("Where DATA is looked for if it is not here.")(command)
    return click.argument("data", type=click.Path(path_type=Path))(command)


raw_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--raw", is_flag=True, help="Leave texts in CSV as they are, also those that a spreadsheet would run as formulas."
)


def budget_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return --budget."""
    return click.option(
        "--budget",
        type=click.Choice(BUDGETS),
        default=default,
        show_default=True,
        help="How much to try: for seconds, a minute or so, or many minutes of fitting on some thousand rows.",
    )


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that train."""
    defaults = parameters_of(Training)
    options = (
        click.option("--estimator", metavar="NAME", help="Which estimator.  [default: the audit's first choice]",
                     shell_complete=component_names("estimator")),
        click.option("--backbone", metavar="NAME",
                     help="Which network, or sklearn:HistGradientBoostingClassifier for trees.  "
                     f"[default: by the data; {DEFAULT_COMPONENTS['backbone']} if its training is told]",
                     shell_complete=component_names("backbone")),
        click.option("--transform", metavar="NAME",
                     help="What happens to candidate sets before they are learned from (see `wsl list transform`).  "
                     "[default: nothing]", shell_complete=component_names("transform")),
        click.option("--use-known-labels", is_flag=True,
                     help="Learn from known true labels, too, except those of the examples held out for the report."),
        click.option("--calibrate/--no-calibrate", default=True, show_default=True,
                     help="Learn a temperature for the probabilities from held-out candidate sets."),
        click.option("--epochs", type=click.IntRange(min=1), help="Passes over the data.  [default: by its size]"),
        click.option("--batch-size", type=click.IntRange(min=1), help="Mini-batch.  [default: by the data's size]"),
        click.option("--lr", type=click.FloatRange(min=0, min_open=True), help="Learning rate.  [default: selected]"),
        click.option("--weight-decay", type=click.FloatRange(min=0), help="l2 regularisation.  [default: selected]"),
        click.option("--patience", type=click.IntRange(min=0), default=0,
                     help="Stop after so many epochs without improvement.  [default: train all epochs]"),
        click.option("--monitor", default=defaults["monitor"].default, show_default=True,
                     help="Metric by which to stop, and to choose the best epoch; it reads candidate sets only."),
        click.option("--keep", type=click.Choice(("last", "best")), default="last", show_default=True,
                     help="Which epoch's model to keep."),
        seed_option("Seed of all streams."),
        device_option,
        click.option("--threads", type=click.IntRange(min=0), default=0,
                     help="Threads of a training step.  [default: what is fastest]"),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def fit_options(options: dict[str, Any], best: Callable[[], str], **more: Any) -> FitOptions:
    """Return what to fit: what was given, and the audit's first choice where nothing was."""
    from wsl_toolkit.own_data.fitting import options_for

    estimator = chosen_component(options, "estimator") or (best(), {})
    keys = [
        "budget",
        "use_known_labels",
        "calibrate",
        "epochs",
        "batch_size",
        "lr",
        "weight_decay",
        "seed",
        "device",
        "threads",
        "patience",
        "monitor",
        "keep",
    ]
    return options_for(
        load_plugins().registry,
        estimator=estimator,
        backbone=chosen_component(options, "backbone"),
        transform=chosen_component(options, "transform"),
        **{key: options[key] for key in keys},
        **more,
    )


def read_and_choose(path: Path, options: dict[str, Any], **more: Any) -> tuple[Data, FitOptions]:
    """Read DATA and settle what to fit with, and say which step of that is under way."""
    from wsl_toolkit.cli.progress import steps
    from wsl_toolkit.own_data.audit import report

    registry = load_plugins().registry
    with steps(("reading", *report.STEPS), quiet=is_quiet()) as begin:
        begin("reading")
        loaded = load_data(path, options)
        chosen = fit_options(
            options, lambda: report.best_estimator(loaded, registry, seed=options["seed"], on_step=begin), **more
        )
    return loaded, chosen
