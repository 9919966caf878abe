"""A study carried out from its description to its report, for the command line and for Python alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import attrs

from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs.tracking.run_folders import sweep, tell
from wsl_toolkit.runs.tracking.store import HOME, Tracker, choose_uri
from wsl_toolkit.studies.codes import check_plugins, other_code
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.driver import StudyError, StudyListener, run_study, study_states
from wsl_toolkit.studies.executor import Cluster, check_installed, make_executor
from wsl_toolkit.studies.plan import Plan, check_description, compute_features, data_digests, held_out_counts, make_plan
from wsl_toolkit.studies.reading import restrict
from wsl_toolkit.studies.report.build import Report, build_report, write_report
from wsl_toolkit.studies.store import StudyFolder
from wsl_toolkit.studies.tracking import StudyOutbox, experiment_name
from wsl_toolkit.training.devices import Facts, gpus_for_workers


@attrs.frozen(kw_only=True)
class Part:
    """Which part of a study to carry out; all of it where nothing is named."""

    datasets: Sequence[str] = ()
    alphas: Sequence[float] = ()
    methods: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class Workers:
    """Who carries a study out."""

    executor: str = "local"
    jobs: int | None = None
    cluster: Cluster = attrs.field(factory=Cluster)
    device: str = "auto"


@attrs.frozen(kw_only=True)
class OldResults:
    """What becomes of results that are there: used where the installed code made them, unless told otherwise."""

    keep: bool = False
    """Use those that other code made, too."""
    again: bool = False
    """Use none: compute everything anew."""


@attrs.frozen(kw_only=True)
class Prepared:
    """A study that was found sound, with what is known of its data, and what is left to do."""

    whole: Study
    study: Study
    folder: StudyFolder
    registry: Registry
    digests: dict[str, str]
    held_out: dict[str, int]
    plan: Plan
    old: OldResults


@attrs.frozen(kw_only=True)
class Done:
    """What came of it: the report, where its runs are tracked, and why it did not come to its end, if so."""

    report: Report
    experiment: str
    folder: StudyFolder
    failure: StudyError | None


def prepare(
    whole: Study,
    part: Part,
    registry: Registry,
    data_dir: Path,
    executor: str = "local",
    old: OldResults | None = None,
) -> Prepared:
    """Check a study and its data, and say what is to be computed; nothing is written."""
    check_installed(executor)
    old = old or OldResults()
    study = restrict(whole, part.datasets, part.alphas, part.methods)
    folder = StudyFolder(HOME, study.name)
    check_plugins(study, folder, registry)
    check_description(whole, registry)  # what is refused never replaces what is there
    digests = data_digests(study, registry, data_dir)
    held_out = held_out_counts(study, registry, data_dir)
    known = folder.compare_data(digests)
    plan = make_plan(whole, study, folder, registry, known, held_out, keep_old=old.keep, again=old.again)
    return Prepared(
        whole=whole,
        study=study,
        folder=folder,
        registry=registry,
        digests=digests,
        held_out=held_out,
        plan=plan,
        old=old,
    )


def carry_out(
    ready: Prepared,
    workers: Workers,
    data_dir: Path,
    tracking_uri: str | None,
    progress: Callable[[], AbstractContextManager[StudyListener]],
) -> Done:
    """Compute what is missing, track it, and write the report; what is finished is never done again."""
    folder, study, registry = ready.folder, ready.study, ready.registry
    folder.create()
    with folder.lock(), progress() as listener:
        if ready.plan.changes or ready.plan.other_code.results or ready.old.again:
            listener.note("\n".join(ready.plan.lines))
        folder.check_data(ready.digests)
        folder.keep_held_out(ready.held_out)
        folder.write_study(ready.whole)
        if ready.old.again:
            folder.begin_again()
        # Before any worker starts: two processes that create the database together would break it.
        tracker = Tracker(choose_uri(tracking_uri), experiment_name(study.name))
        tell(tracker, sweep(tracker.home, listener.note))
        since = 0 if ready.old.keep else folder.begun_again()
        outbox = StudyOutbox(tracker, study, listener.note, codes=ready.plan.codes, since=since)
        outbox.begin()
        if workers.executor != "ray" and ready.plan.to_compute:  # whose nodes may have no disk in common with us
            compute_features(study, registry, data_dir, workers.device, listener.note, listener.features)
        gpus = gpus_for_workers(workers.device, Facts.here()) if workers.executor == "local" else []
        executor = make_executor(workers.executor, workers.jobs, workers.cluster, gpus)
        failure = None
        try:
            run_study(
                study,
                folder,
                registry,
                executor,
                listener,
                outbox,
                data_dir=data_dir,
                device=workers.device,
                keep_old=ready.old.keep,
            )
        except StudyError as error:
            failure = error  # what is there is reported all the same
        states = study_states(ready.whole, folder, registry)
        report = build_report(ready.whole, states, other_code=other_code(states, folder, registry))
        write_report(report, folder.path / "report")
        outbox.finish_study(folder.path / "report", complete=report.complete)
    return Done(report=report, experiment=tracker.experiment, folder=folder, failure=failure)
