"""`wsl run`: train one method on one setting, tracked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.components import ROLES, Component
from wsl_toolkit.config import DEFAULT_COMPONENTS, RunConfig, Training, from_dict, merge, read_toml
from wsl_toolkit.options import ComponentCommand, component_options, given_values, peek
from wsl_toolkit.plugins import load_plugins

if TYPE_CHECKING:
    from wsl_toolkit.result import RunResult

EPILOG = """\b
Examples:
  wsl run --estimator ppl --generator mcl-skewed
  wsl run --estimator cc --generator mcl-skewed --generator-alpha 0.9 --trials 5
  wsl run --dataset mnist --data-dir ~/data --backbone mlp --epochs 20
  wsl run --generator mcl-skewed --help        (shows that generator's own options)
  wsl run --config experiment.toml --lr 0.01   (flags override the file)
"""


def chosen_names(args: Sequence[str]) -> dict[str, str]:
    """Return the component of each role: the flag, else the configuration file, else the default."""
    names = dict(DEFAULT_COMPONENTS)
    config = peek(args, "--config")
    if config is not None and Path(config).is_file():
        names |= {role: name for role, (name, _) in from_dict(read_toml(Path(config)), config).components.items()}
    for role in names:
        names[role] = peek(args, f"--{role}") or names[role]
    return names


def choose(args: Sequence[str]) -> list[tuple[str, type[Component]]]:
    """Return the chosen components, whose parameters become options."""
    registry = load_plugins().registry
    return [(f"{role}-", registry.get(role, name)) for role, name in chosen_names(args).items()]


def role_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --dataset, --generator, --estimator, --backbone."""
    for role, default in reversed(DEFAULT_COMPONENTS.items()):
        help_text = f"Which {role} (see `wsl list {role}`); its own options appear below.  [default: {default}]"
        command = click.option(f"--{role}", metavar="NAME", help=help_text)(command)
    return command


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each training setting."""
    params: list[click.Parameter] = getattr(command, "__click_params__", [])
    command.__click_params__ = [*reversed(component_options(Training, "")), *params]  # type: ignore[attr-defined]
    return command


@click.command("run", cls=ComponentCommand, choose=choose, epilog=EPILOG)
@role_options
@training_options
@click.option(
    "--data-dir",
    envvar="WSL_DATA_DIR",
    type=click.Path(path_type=Path),
    default=Path("data"),
    show_default=True,
    show_envvar=True,
    help="Where datasets are kept.",
)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file; flags override it.")
@click.option("--experiment", help="MLflow experiment.  [default: wsl-<dataset>]")
@click.option("--tracking-uri", help="MLflow store.  [default: MLFLOW_TRACKING_URI, else wsl-runs/mlflow.db]")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="A tag for the run; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Print the resolved configuration as TOML and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress, no table.")
def run(**options: Any) -> None:
    """Train a classifier from candidate sets, evaluate it, and track the run in MLflow."""
    config = _config(options)
    registry = load_plugins().registry
    if options["dry_run"]:
        resolved = config.resolved(registry)
        print_json(resolved.to_dict()) if options["as_json"] else click.echo(resolved.to_toml(), nl=False)
        return
    from wsl_toolkit import runner
    from wsl_toolkit.cli.progress import progress
    from wsl_toolkit.tracking import Tracker, choose_uri

    config = config.resolved(registry)
    tags = runner.check_tags(options["tags"])
    experiment = options["experiment"] or f"wsl-{config.components['dataset'][0]}"
    with progress(quiet=options["quiet"]) as listener:
        result = runner.run(
            config,
            registry,
            lambda: Tracker(choose_uri(options["tracking_uri"]), experiment),
            listener,
            data_dir=options["data_dir"],
            tags=tags,
        )
    if options["as_json"]:
        print_json(result.to_dict())
    elif not options["quiet"]:
        _show(result, options["tracking_uri"])


def _config(options: dict[str, Any]) -> RunConfig:
    """Put file and flags together."""
    file = options["config_file"]
    base = (from_dict(read_toml(file), str(file)) if file else RunConfig()).with_defaults()
    registry = load_plugins().registry
    components = {}
    for role in ROLES:
        name = options[role] or base.components[role][0]
        components[role] = (name, given_values(options, f"{role}-", registry.get(role, name)))
    training = {field.name: options[field.name] for field in attrs.fields(Training)}
    return merge(base, {key: value for key, value in training.items() if value is not None}, components)


def _show(result: RunResult, tracking_uri: str | None) -> None:
    from rich.table import Table

    from wsl_toolkit.summary import SHOWN, shown_value

    table = Table(title=result.name, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for key, label in SHOWN.items():
        if key in result.mean:
            table.add_row(label, shown_value(result, key))
    seconds = sum(trial["seconds"] for trial in result.trials)
    table.add_row("training time", f"{seconds:.1f} s" + (f" for {n} trials" if (n := len(result.trials)) > 1 else ""))
    out = console()
    out.print()
    out.print(table)
    out.print(f"run {result.run_id} in experiment {result.experiment}")
    uri = f" --tracking-uri {tracking_uri}" if tracking_uri else ""
    out.print(f"See it: wsl ui{uri}")
