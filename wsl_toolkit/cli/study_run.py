"""`wsl study run` and `wsl study resume`."""

from __future__ import annotations

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
What is finished is never done again: run the same command after an interruption, or `wsl study resume NAME`.
"""


def working_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what `run` and `resume` share."""
    options = (
        click.option("--jobs", type=click.IntRange(min=1),
                     help="Tasks at a time.  [default: one for each core, or what the cluster has room for]"),
        click.option("--executor", type=click.Choice(["local", "ray", "inline"]), default="local", show_default=True,
                     help="Who trains: worker processes, a Ray cluster, or this process alone."),
        click.option("--address", default="auto", show_default=True, metavar="HOST:PORT",
                     help="Ray: the cluster; auto: the one of this machine; local: start one here."),
        click.option("--task-cpus", type=click.IntRange(min=1), default=1, show_default=True,
                     help="Ray: cores of a task, which is one training or one stack of them."),
        click.option("--task-gpus", type=click.FloatRange(min=0), default=0.0, show_default=True,
                     help="Ray: GPUs of a task; 0.5 lets two share one."),
        click.option("--task-memory", type=click.FloatRange(min=0), default=0.0, metavar="GB",
                     help="Ray: memory of a task.  [default: left to the nodes]"),
        click.option("--node-data", is_flag=True,
                     help="Ray: each node reads --data-dir itself; otherwise data is sent to each node once."),
        click.option("--dataset", "datasets", multiple=True, metavar="NAME", help="Only these datasets; repeatable.",
                     shell_complete=component_names("dataset")),
        click.option("--alpha", "alphas", type=float, multiple=True, help="Only settings with this α; repeatable."),
        click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods; repeatable."),
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
    from wsl_toolkit.cli.study_status import started_study

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
    from wsl_toolkit.runs.tracking.run_folders import sweep, tell
    from wsl_toolkit.runs.tracking.store import HOME, Tracker, choose_uri
    from wsl_toolkit.studies.driver import StudyError, run_study, study_states
    from wsl_toolkit.studies.executor import check_installed, make_executor
    from wsl_toolkit.studies.plan import check_description, data_digests, held_out_counts, make_plan
    from wsl_toolkit.studies.reading import restrict
    from wsl_toolkit.studies.report.build import as_plain, build_report, write_report
    from wsl_toolkit.studies.store import StudyFolder
    from wsl_toolkit.studies.tracking import StudyOutbox, experiment_name

    check_installed(options["executor"])
    study = restrict(whole, options["datasets"], options["alphas"], options["methods"])
    registry = load_plugins().registry
    folder = StudyFolder(HOME, study.name)
    check_description(whole, registry)  # what is refused never replaces what is there
    digests = data_digests(study, registry, options["data_dir"])
    held_out = held_out_counts(study, registry, options["data_dir"])
    plan = make_plan(whole, study, folder, registry, folder.compare_data(digests), held_out)
    if options["dry_run"]:
        _say(plan, as_json=options["as_json"])
        return
    folder.create()
    with folder.lock(), study_progress(quiet=is_quiet()) as listener:
        if plan.changes:
            listener.note("\n".join(plan.lines))
        folder.check_data(digests)
        folder.keep_held_out(held_out)
        folder.write_study(whole)
        # Before any worker starts: two processes that create the database together would break it.
        tracker = Tracker(choose_uri(options["tracking_uri"]), experiment_name(study.name))
        tell(tracker, sweep(tracker.home, listener.note))
        outbox = StudyOutbox(tracker, study, listener.note)
        outbox.begin()
        executor = make_executor(options["executor"], options["jobs"], _cluster(options))
        device, data_dir = options["device"], options["data_dir"]
        failure = None
        try:
            run_study(study, folder, registry, executor, listener, outbox, data_dir=data_dir, device=device)
        except StudyError as error:
            failure = error  # what is there is reported all the same
        report = build_report(whole, study_states(whole, folder, registry))
        write_report(report, folder.path / "report")
        outbox.finish_study(folder.path / "report", complete=report.complete)
    if options["as_json"]:
        print_json(as_plain(report))
    elif not is_quiet():
        print_report(report, brief=True)
        click.echo(f"\nreport: {folder.path / 'report' / 'report.html'}")
        click.echo(f"runs: experiment {tracker.experiment}, see them with `wsl ui`")
    if failure is not None:
        raise failure
