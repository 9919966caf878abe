"""`wsl run`: train one method on one setting, tracked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import data_dir_option, is_quiet, json_option, tracking_uri_option
from wsl_toolkit.cli.complete import component_names, run_folders
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.cli.options import ComponentCommand, component_options, given_values, peek, peek_all
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.parameters import parameters_of
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.toml_files import read_toml
from wsl_toolkit.training.config import CONFIGURED, DEFAULT_COMPONENTS, RunConfig, Training, from_dict, merge

if TYPE_CHECKING:
    from wsl_toolkit.cli.progress import Silent
    from wsl_toolkit.runs.result import RunResult

EPILOG = """\b
Examples:
  wsl run --estimator ppl --generator mcl-skewed
  wsl run --estimator cc --generator mcl-skewed --generator-alpha 0.9 --trials 5
  wsl run --dataset mnist --data-dir ~/data --backbone mlp --epochs 20
  wsl run --generator mcl-skewed --help        (shows that generator's own options)
  wsl run --config experiment.toml --lr 0.01   (flags override the file)
  wsl run --resume RUN                         (go on after an interruption, to the same bits)
"""


def chosen_names(args: Sequence[str]) -> dict[str, str]:
    """Return the component of each role: the flag, else the configuration file, else the default."""
    names = dict(DEFAULT_COMPONENTS)
    config = peek(args, "--config")
    if config is not None and Path(config).is_file():
        names |= {role: name for role, (name, _) in from_dict(read_toml(Path(config)), config).components.items()}
    given = {role: peek(args, f"--{role}") for role in CONFIGURED}
    return names | {role: name for role, name in given.items() if name}


def chosen_callbacks(args: Sequence[str]) -> list[str]:
    """Return the callbacks that flags name, each once."""
    return list(dict.fromkeys(peek_all(args, "--callback")))


def choose(args: Sequence[str]) -> list[tuple[str, type]]:
    """Return the chosen components, whose parameters become options."""
    registry = load_plugins().registry
    chosen: list[tuple[str, type]] = [
        (f"{role}-", registry.get(role, name)) for role, name in chosen_names(args).items()
    ]
    chosen += [(f"callback-{name}-", registry.get("callback", name)) for name in chosen_callbacks(args)]
    # torch, which knows the options of optimisers, is not imported only to print a page of help.
    if any(arg.startswith(("--optimizer", "--scheduler")) for arg in args):
        config = peek(args, "--config")
        known = from_dict(read_toml(Path(config)), config).training if config and Path(config).is_file() else Training()
        # A name that does not exist is the run's to refuse, once, whatever number of processes reads these arguments.
        with contextlib.suppress(ConfigError):
            chosen += options_beside(
                peek(args, "--optimizer") or known.optimizer, peek(args, "--scheduler") or known.scheduler
            )
    return chosen


def role_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --dataset, --generator, --estimator, --backbone, and what a plugin may add to them."""
    command = click.option(
        "--callback",
        "callbacks",
        multiple=True,
        metavar="NAME",
        help="Who else hears of the training (see `wsl list callback`); may be repeated. The options of each appear "
        "below, as --callback-NAME-...",
        shell_complete=component_names("callback"),
    )(command)
    command = click.option(
        "--transform",
        metavar="NAME",
        help="What happens to the candidate sets before training (see `wsl list transform`).  [default: nothing]",
        shell_complete=component_names("transform"),
    )(command)
    for role, default in reversed(DEFAULT_COMPONENTS.items()):
        help_text = f"Which {role} (see `wsl list {role}`); its own options appear below.  [default: {default}]"
        command = click.option(f"--{role}", metavar="NAME", help=help_text, shell_complete=component_names(role))(
            command
        )
    return command


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each training setting."""
    params: list[click.Parameter] = getattr(command, "__click_params__", [])
    command.__click_params__ = [*reversed(component_options(Training, "")), *params]  # type: ignore[attr-defined]
    return command


@click.command("run", cls=ComponentCommand, choose=choose, epilog=EPILOG)
@role_options
@training_options
@data_dir_option()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file; flags override it.")
@click.option("--experiment", help="MLflow experiment.  [default: wsl-<dataset>]")
@tracking_uri_option
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="A tag for the run; may be repeated.")
@click.option(
    "--resume",
    metavar="RUN",
    help="Go on with a run that was interrupted: its id, or its folder.",
    shell_complete=run_folders,
)
@click.option(
    "--other-code",
    is_flag=True,
    help="With --resume: go on though a plugin or the toolkit has changed since; the run's tags say so.",
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(1),
    metavar="EPOCHS",
    help="Save the state every so many epochs.  [default: every 30 s or so, at most 2% of the time]",
)
@click.option("--dry-run", is_flag=True, help="Print the resolved configuration as TOML and stop.")
@json_option
def run(**options: Any) -> None:
    """Train a classifier from candidate sets, evaluate it, and track the run in MLflow.

    Ctrl-C stops between two batches and leaves a checkpoint; a second Ctrl-C stops at once.
    """
    from wsl_toolkit.cli.progress import progress
    from wsl_toolkit.runs import runner
    from wsl_toolkit.training.distributed import joined

    registry = load_plugins().registry
    if options["other_code"] and options["resume"] is None:
        raise click.UsageError("--other-code goes with --resume: a new run is made by the code that is installed")
    config = None
    if options["resume"] is not None:
        _refuse_others(options)
    else:
        config = _config(options).resolved(registry)
        if options["dry_run"]:
            print_json(config.to_dict()) if options["as_json"] else click.echo(config.to_toml(), nl=False)
            return
    with joined() as ranks:
        if ranks is not None and not ranks.leads:
            runner.follow(registry, ranks)
            return
        shown = _ShownAtOnce(options)
        with progress(quiet=is_quiet(), show=shown) as listener:
            result = runner.run(
                registry=registry,
                listener=listener,
                checkpoint_every=options["checkpoint_every"],
                ranks=ranks,
                **_request(options, config, listener),
            )
    if shown.failure is not None:
        raise shown.failure
    if options["as_json"]:
        print_json(result.to_dict())


class _ShownAtOnce:
    """Shows a person the result as soon as training has ended; output that fails waits until the run is complete."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.wanted = not options["as_json"] and not is_quiet()
        self.tracking_uri = options["tracking_uri"]
        self.failure: BaseException | None = None

    def __call__(self, result: RunResult) -> None:
        try:
            if self.wanted:
                _show(result, self.tracking_uri)
        except (OSError, SystemExit) as error:  # rich exits where a pipe is closed
            self.failure = error


def _request(options: dict[str, Any], config: RunConfig | None, listener: Silent) -> dict[str, Any]:
    """Return what the runner is asked to do: a new run, or to go on with one that was interrupted."""
    from wsl_toolkit.runs import requests, runner

    if config is not None:
        return requests.new_run(
            config,
            experiment=options["experiment"],
            tracking_uri=options["tracking_uri"],
            data_dir=options["data_dir"],
            tags=runner.check_tags(options["tags"]),
            note=listener.note,
        )
    source = click.get_current_context().get_parameter_source("data_dir")
    data_dir = None if source is click.core.ParameterSource.DEFAULT else options["data_dir"]
    return requests.resumed_run(
        options["resume"],
        load_plugins().registry,
        tracking_uri=options["tracking_uri"],
        data_dir=data_dir,
        note=listener.note,
        other_code=options["other_code"],
    )


def _refuse_others(options: dict[str, Any]) -> None:
    """A resumed run keeps its configuration: another one would be another run."""
    allowed = {"resume", "data_dir", "tracking_uri", "checkpoint_every", "as_json", "other_code"}
    for name, value in options.items():
        if name not in allowed and value not in (None, False, ()):
            flag = {"config_file": "config", "tags": "tag", "callbacks": "callback"}.get(name, name).replace("_", "-")
            raise ConfigError(f"--resume goes on with the run's own configuration: leave --{flag} out")


def _config(options: dict[str, Any]) -> RunConfig:
    """Put file and flags together."""
    file = options["config_file"]
    base = (from_dict(read_toml(file), str(file)) if file else RunConfig()).with_defaults()
    registry = load_plugins().registry
    components = {}
    for role in CONFIGURED:
        name = options[role] or base.components.get(role, ("",))[0]
        if name:
            components[role] = (name, given_values(options, f"{role}-", registry.get(role, name)))
    callbacks = tuple(
        (name, given_values(options, f"callback-{name}-", registry.get("callback", name)))
        for name in dict.fromkeys(options["callbacks"])
    )
    training = {name: options[name] for name in parameters_of(Training) if options[name] is not None}
    for key, cls in _option_classes(options, base.training).items():
        given = given_values(options, f"{key}-", cls)
        if given:
            before = base.training.to_dict()[key]
            kept = before if isinstance(before, dict) and options[key] in (None, before["name"]) else {}
            training[key] = {**kept, "name": options[key] or getattr(base.training, key), **given}
    return merge(base, training, components, callbacks)


def _option_classes(options: Mapping[str, Any], base: Training) -> dict[str, type]:
    """Return the optimiser's and the schedule's own options, if any of them was given."""
    own = [name for name in options if name.startswith(("optimizer_", "scheduler_"))]
    if not any(options[name] is not None for name in own):
        return {}
    found = options_beside(options["optimizer"] or base.optimizer, options["scheduler"] or base.scheduler)
    return {prefix.rstrip("-"): cls for prefix, cls in found}


def options_beside(optimizer: str, scheduler: str) -> list[tuple[str, type]]:
    """Return the options of an optimiser and of a schedule."""
    from wsl_toolkit.training.optimisers import options_class
    from wsl_toolkit.training.schedules import schedule_class

    return [("optimizer-", options_class(optimizer)), ("scheduler-", schedule_class(scheduler))]


def _show(result: RunResult, tracking_uri: str | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    from wsl_toolkit.runs.summary import shown, shown_value
    from wsl_toolkit.runs.tracking.store import redact

    table = Table(title=escape(result.name), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for key, label in shown(result.mean).items():
        table.add_row(escape(label), shown_value(result, key))
    seconds = sum(trial["seconds"] for trial in result.trials)
    table.add_row("training time", f"{seconds:.1f} s" + (f" for {n} trials" if (n := len(result.trials)) > 1 else ""))
    out = console()
    out.print()
    out.print(table)
    out.print(f"run {result.run_id} in experiment {result.experiment}", markup=False)
    uri = f" --tracking-uri {redact(tracking_uri)}" if tracking_uri else ""
    out.print(f"See it: wsl ui{uri}", markup=False)
