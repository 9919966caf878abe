"""`wsl study run` and `wsl study resume`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import data_dir_option, device_option, is_quiet, json_option, tracking_uri_option
from wsl_toolkit.cli.complete import component_names, started_studies, study_files
from wsl_toolkit.cli.console import print_json
from wsl_toolkit.plugins.loading import load_plugins

if TYPE_CHECKING:
    from wsl_toolkit.studies.description import Study
    from wsl_toolkit.studies.executor import Cluster
    from wsl_toolkit.studies.plan import Plan

EPILOG = """\b
Examples:
  wsl study run paper-table-3 --quick
  wsl study run paper-table-3 --dataset mnist --alpha 0.9 --data-dir ~/data
  wsl study run my-study.toml --jobs 4
  wsl study run my-study.toml --dry-run
  wsl study run my-study.toml --executor ray --address 10.0.0.1:6379
  wsl study run my-study.toml --executor slurm --slurm partition=gpu --task-gpus 1
What is finished is never done again: run the same command after an interruption, or `wsl study resume NAME`. Results
that another version of a plugin or of the toolkit made are computed anew, unless --keep-old says otherwise.
"""


def _pairs(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Split OPTION=VALUE."""
    for value in values:
        if not re.fullmatch(r"[a-z][a-z0-9-]*=[^\n]+", value):
            raise click.BadParameter(f"{value!r} is not OPTION=VALUE, as in partition=gpu", ctx, parameter)
    return tuple((name, text) for name, _, text in (value.partition("=") for value in values))


def working_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what `run` and `resume` share."""
    options = (
        click.option("--jobs", type=click.IntRange(min=1),
                     help="Tasks at a time.  [default: one for each GPU or core, or what the cluster has room for]"),
        click.option("--executor", type=click.Choice(["local", "ray", "slurm", "inline"]), default="local",
                     show_default=True,
                     help="Who trains: worker processes, a Ray cluster, jobs of SLURM, or this process alone."),
        click.option("--address", default="auto", show_default=True, metavar="HOST:PORT",
                     help="Ray: the cluster; auto: this machine's; local: start one. SLURM: auto or local."),
        click.option("--task-cpus", type=click.IntRange(min=1), default=1, show_default=True,
                     help="Clusters: cores of a task, which is one training or one stack of them."),
        click.option("--task-gpus", type=click.FloatRange(min=0), default=0.0, show_default=True,
                     help="Clusters: GPUs of a task; with Ray, 0.5 lets two share one."),
        click.option("--task-memory", type=click.FloatRange(min=0), default=0.0, metavar="GB",
                     help="Clusters: memory of a task.  [default: left to the nodes]"),
        click.option("--node-data", is_flag=True,
                     help="Ray: each node reads --data-dir itself; otherwise data is sent to each node once."),
        click.option("--task-minutes", type=click.IntRange(min=1), default=60, show_default=True,
                     help="SLURM: time limit of a task; what it cuts off goes on from its last checkpoint."),
        click.option("--slurm", "slurm", multiple=True, metavar="OPTION=VALUE", callback=_pairs,
                     help="SLURM: an option of sbatch, such as partition=gpu or account=lab; repeatable."),
        click.option("--dataset", "datasets", multiple=True, metavar="NAME", help="Only these datasets; repeatable.",
                     shell_complete=component_names("dataset")),
        click.option("--alpha", "alphas", type=float, multiple=True, help="Only settings with this α; repeatable."),
        click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods; repeatable."),
        click.option("--keep-old", is_flag=True,
                     help="Use results that other code made than is installed; otherwise they are computed anew."),
        click.option("--again", is_flag=True,
                     help="Compute everything anew; the old results are replaced one by one, as new ones come."),
        click.option("--dry-run", is_flag=True,
                     help="Say what changed, what is kept and what would be computed, and do nothing."),
        data_dir_option(),
        device_option,
        tracking_uri_option,
        json_option,
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command("run", epilog=EPILOG)
@click.argument("study", metavar="FILE|NAME", shell_complete=study_files)
@click.option("--epochs", type=click.IntRange(min=1), help="Epochs of each trial (and at most that many in a search).")
@click.option("--quick", is_flag=True, help="A small real study: the description's own [quick] part.")
@working_options
def run(study: str, epochs: int | None, quick: bool, **options: Any) -> None:
    """Run a study from a TOML or Python file, or a built-in by its name."""
    from wsl_toolkit.studies.reading import read_study

    _work(read_study(study, quick=quick, datasets=options["datasets"], epochs=epochs), options)


@click.command("resume")
@click.argument("study", metavar="NAME", shell_complete=started_studies)
@working_options
def resume(study: str, **options: Any) -> None:
    """Go on with a study that was started here: finished runs are kept, missing ones done, all delivered."""
    from wsl_toolkit.studies.status import started_study

    _, description = started_study(study)
    _work(description, options)


def _cluster(options: dict[str, Any]) -> Cluster:
    from wsl_toolkit.studies.executor import Cluster

    return Cluster(
        address=options["address"],
        cpus=options["task_cpus"],
        gpus=options["task_gpus"],
        memory=int(options["task_memory"] * 2**30),
        node_data=options["node_data"],
        minutes=options["task_minutes"],
        options=options["slurm"],
    )


def _say(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan.to_dict())
        return
    for line in plan.lines:
        click.echo(line)


def _work(whole: Study, options: dict[str, Any]) -> None:
    from wsl_toolkit.cli.report_tables import print_report
    from wsl_toolkit.cli.study_progress import study_progress
    from wsl_toolkit.studies.report.build import as_plain
    from wsl_toolkit.studies.work import OldResults, Part, Workers, carry_out, prepare

    keep_old, again = options["keep_old"], options["again"]
    if keep_old and again:
        raise click.UsageError("--again computes everything anew, --keep-old keeps what is there: leave one out")
    part = Part(datasets=options["datasets"], alphas=options["alphas"], methods=options["methods"])
    data_dir = options["data_dir"]
    old = OldResults(keep=keep_old, again=again)
    ready = prepare(whole, part, load_plugins().registry, data_dir, options["executor"], old)
    if options["dry_run"]:
        _say(ready.plan, as_json=options["as_json"])
        return
    workers = Workers(
        executor=options["executor"], jobs=options["jobs"], cluster=_cluster(options), device=options["device"]
    )
    done = carry_out(ready, workers, data_dir, options["tracking_uri"], lambda: study_progress(quiet=is_quiet()))
    if options["as_json"]:
        print_json(as_plain(done.report))
    elif not is_quiet():
        print_report(done.report, brief=True)
        click.echo(f"\nreport: {done.folder.path / 'report' / 'report.html'}")
        click.echo(f"runs: experiment {done.experiment}, see them with `wsl ui`")
    if done.failure is not None:
        raise done.failure
