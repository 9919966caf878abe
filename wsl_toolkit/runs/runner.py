"""A run: configuration -> seeded objects -> engine -> records and tracking -> result."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import ConfigError, DataError, DivergedError, InterruptedRunError
from wsl_toolkit.plugins.attribution import blame
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs import summary, trial_figures
from wsl_toolkit.runs.folder import RunFolder, children_of, same_metrics
from wsl_toolkit.runs.result import RunResult
from wsl_toolkit.runs.session import Listener, Parts, Session, tracked_in
from wsl_toolkit.runs.tracking.store import CANDIDATES_FILE, RunFacts, Tracker
from wsl_toolkit.runs.tracking.tracked_run import TrackedRun
from wsl_toolkit.system import environment
from wsl_toolkit.system.memory import explain_memory
from wsl_toolkit.system.signals import listening
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.config import RunConfig, from_dict, read_toml
from wsl_toolkit.training.distributed import Ranks
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.train import TrialOutcome, TrialResult, check_training, run_trial
from wsl_toolkit.training.trial_memory import TrialMemory

MAX_LOGGED_CANDIDATES = 64 * 2**20
"""Candidate sets larger than this are tracked by their hash alone."""

CANDIDATES_INPUT = "candidate-sets"


def run(
    config: RunConfig,
    registry: Registry,
    open_tracker: Callable[[], Tracker],
    listener: Listener,
    *,
    data_dir: Path,
    tags: dict[str, str],
    checkpoint_every: int | None = None,
    ranks: Ranks | None = None,
) -> RunResult:
    """Carry out a configuration, one run for one trial, or a parent with a child for each of several.

    The store is opened only when configuration and data are known to be sound, so that a mistake records nothing.
    Of several `ranks` the first calls this, and the others `follow`.
    """
    return _prepare(config, registry, open_tracker, listener, data_dir, checkpoint_every, tags, None, ranks)


def resume(
    folder: RunFolder,
    registry: Registry,
    open_tracker: Callable[[], Tracker],
    listener: Listener,
    *,
    data_dir: Path | None = None,
    checkpoint_every: int | None = None,
    ranks: Ranks | None = None,
) -> RunResult:
    """Go on with a run that was interrupted, from its newest checkpoints, to the same bits."""
    if folder.result() is not None:
        raise ConfigError(f"run {folder.run_id} is complete: there is nothing to resume")
    file = folder.path / "config.toml"
    config = from_dict(read_toml(file), str(file))
    place = data_dir or Path(folder.fact("data_dir", "data"))
    tags = folder.fact("tags", {})
    return _prepare(config, registry, open_tracker, listener, place, checkpoint_every, tags, folder, ranks)


def follow(registry: Registry, ranks: Ranks) -> None:
    """Do another rank's part of a run: the same trials on the same problems, but no files and no tracking."""
    ranks.agree("versions", environment.versions())
    told = ranks.tell()
    config = from_dict(told["config"], "rank 0's configuration").resolved(registry)
    parts = load_parts(config, registry, Path(told["data_dir"]))
    # What ends all ranks alike is rank 0's to report.
    with listening() as stop, contextlib.suppress(InterruptedRunError, DivergedError):
        while (seed := ranks.tell()) is not None:
            wanted = config.training
            problem = make_problem(
                parts.data, parts.generator, seed=seed, validation=wanted.validation, test=wanted.test
            )
            run_trial(problem, parts.estimator, parts.backbone, wanted, seed, stop=stop, ranks=ranks)


def _prepare(
    config: RunConfig,
    registry: Registry,
    open_tracker: Callable[[], Tracker],
    listener: Listener,
    data_dir: Path,
    checkpoint_every: int | None,
    tags: dict[str, str],
    folder: RunFolder | None,
    ranks: Ranks | None,
) -> RunResult:
    config = config.resolved(registry)
    check_training(config.training)
    if ranks is not None:
        ranks.agree("versions", environment.versions())
        ranks.tell({"config": config.to_dict(), "data_dir": str(data_dir)})
    parts = load_parts(config, registry, data_dir)
    tracker = open_tracker()
    notes = summary.notes(parts.estimator, parts.generator)
    for note in notes:
        listener.note(note)
    config = attrs.evolve(config, components=_used(config, parts))
    facts = RunFacts(
        name=summary.run_name(config),
        params=config.flat(),
        tags={**environment.tags(), **summary.provenance(config, registry), **summary.verdict(notes), **tags},
        description=summary.describe_start(config, parts.estimator, notes),
        parent=folder.fact("parent") if folder else None,
    )
    with listening() as stop:
        session = Session(
            config=config,
            registry=registry,
            tracker=tracker,
            listener=listener,
            parts=parts,
            stop=stop,
            checkpoint_every=checkpoint_every,
            data_dir=data_dir.resolve(),
            ranks=ranks,
        )
        return _carry_out(session, facts, notes, folder)


def _carry_out(session: Session, facts: RunFacts, notes: tuple[str, ...], folder: RunFolder | None) -> RunResult:
    config = session.config
    seeds = range(config.training.seed, config.training.seed + config.training.trials)
    outcomes: list[TrialOutcome] = []
    with tracked_in(session, facts, config, folder) as tracked:
        begun = children_of(tracked.folder) if folder is not None and len(seeds) > 1 else {}
        for number, seed in enumerate(seeds, start=1):
            session.stop.grant(f" before trial {number} of {len(seeds)}")
            session.listener.trial(number, len(seeds), seed, config.training.epochs)
            if len(seeds) == 1:
                outcomes.append(_trial(session, config, seed, tracked))
                continue
            child = begun.get(seed)
            if child is not None and (done := _finished(child, config.training.epochs)) is not None:
                session.listener.epoch(done.records[-1])
                outcomes.append(done)
                continue
            one = attrs.evolve(config, training=attrs.evolve(config.training, seed=seed, trials=1))
            about = attrs.evolve(facts, name=f"{facts.name} | seed {seed}", params=one.flat(), parent=tracked.run_id)
            with tracked_in(session, about, one, child) as tracked_child:
                outcomes.append(_trial(session, one, seed, tracked_child))
                tracked_child.folder.write_result(summary.trial_facts(outcomes[-1]))
        result = _collect(config, session.tracker, tracked.run_id, facts.name, outcomes, notes)
        if session.ranks is not None:
            session.ranks.tell(None)  # there are no more trials
        _log_outcome(tracked, result, outcomes)
    return result


def load_parts(config: RunConfig, registry: Registry, data_dir: Path) -> Parts:
    """Create the components and load the data; a generator is dropped where the data brings its own sets."""
    with blame(registry, "dataset", config.components["dataset"][0]):
        data = config.create("dataset", registry).load(data_dir)
    return Parts(
        data=data,
        generator=None if data.candidates is not None else config.create("generator", registry),
        estimator=config.create("estimator", registry),
        backbone=config.create("backbone", registry),
    )


def _used(config: RunConfig, parts: Parts) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the components without the generator that the data made idle."""
    idle = {"generator"} if parts.generator is None else set()
    return {role: value for role, value in config.components.items() if role not in idle}


def _trial(session: Session, config: RunConfig, seed: int, tracked: TrackedRun) -> TrialResult:
    listener, folder = session.listener, tracked.folder
    names = {role: name for role, (name, _) in config.components.items()}
    wanted = config.training
    advice = f"lower --batch-size (now {wanted.batch_size}), or choose a smaller --backbone or less data"
    if session.ranks is not None:
        session.ranks.tell(seed)
    with explain_memory(advice):
        problem = _problem(config, session, seed)
        _log_inputs(tracked, session.parts.data, problem)
        memory = _memory(session, config, folder, problem)
        known = {timed.record.epoch: timed.record for timed in folder.restore_records(list(memory.past.records))}
        if memory.place is not None:
            listener.note(f"going on from {memory.place} of {wanted.epochs}")

        def on_epoch(record: EpochRecord) -> None:
            listener.epoch(record)
            _explain(session, record, known.get(record.epoch))
            if record.epoch not in known:
                tracked.log_epoch(folder.append(record))

        with (
            blame(session.registry, "backbone", names["backbone"]),
            blame(session.registry, "estimator", names["estimator"]),
        ):
            parts = session.parts
            result = run_trial(
                problem,
                parts.estimator,
                parts.backbone,
                wanted,
                seed,
                on_epoch,
                memory=memory,
                stop=session.stop,
                ranks=session.ranks,
            )
    tracked.flush()
    tracked.log_figure(summary.curve_figure([result.records], summary.run_name(config)), "figures/learning_curve.png")
    for name, figure in trial_figures.trial_figures(result.model, problem, result.records, summary.run_name(config)):
        tracked.log_figure(figure, f"figures/{name}.png")
    tracked.log_model(*summary.deployable(result.model, problem, session.parts.data))
    return result


def _memory(session: Session, config: RunConfig, folder: RunFolder, problem: Problem) -> TrialMemory:
    """Return where a trial's checkpoints go, bound to what the trial depends on."""
    held_out = problem.validation_candidates
    identity = {
        "configuration": config.to_toml(),
        "data": session.parts.data.digest(),
        "candidate sets": problem.train_candidates.content_hash,
        "held-out candidate sets": held_out.content_hash if held_out is not None else "",
    }
    note = session.listener.note
    kept = Checkpoints(folder.path / "checkpoints", every=session.checkpoint_every, note=note)
    return TrialMemory(kept, identity, note)


def _explain(session: Session, record: EpochRecord, before: EpochRecord | None) -> None:
    """Say once what a user may stumble over: a negative risk, a loss that is no number, an epoch that came out anew."""
    risk = record.metrics["train/risk"]
    if risk < 0:
        session.note_once(
            "negative",
            f"the empirical risk is negative ({risk:.4g} at epoch {record.epoch}). That is no fault of the run: an "
            "unbiased estimate weighs some losses negatively, and a network that fits the sets closely can push it "
            "below zero. Read it as a sign of over-fitting, against which weight decay and fewer epochs help",
        )
    if not math.isfinite(risk):
        session.note_once(
            "nan", f"the loss became {risk} in epoch {record.epoch}; the run goes on because of --on-nan continue"
        )
    if before is not None and not same_metrics(before.metrics, record.metrics):
        session.note_once(
            "differs",
            f"epoch {record.epoch} did not come out as it did before the interruption: the result is the same up to "
            "rounding only (another machine, or a component that is not reproducible)",
        )


def _finished(folder: RunFolder, epochs: int) -> TrialOutcome | None:
    """Return what came of a trial that is complete on disk; one of whose files is damaged goes on from its end."""
    facts, records = folder.result(), tuple(timed.record for timed in folder.records())
    if facts is None or len(records) != epochs:
        return None
    try:
        return TrialOutcome(
            seed=facts["seed"],
            records=records,
            candidates_hash=facts["candidates"]["hash"],
            mean_size=facts["candidates"]["mean_size"],
            seconds=facts["seconds"],
        )
    except (KeyError, TypeError):
        return None


def _problem(config: RunConfig, session: Session, seed: int) -> Problem:
    wanted, parts = config.training, session.parts
    guard = blame(session.registry, "generator", parts.generator.name) if parts.generator else contextlib.nullcontext()
    with guard:
        return make_problem(parts.data, parts.generator, seed=seed, validation=wanted.validation, test=wanted.test)


def _log_inputs(tracked: TrackedRun, data: Data, problem: Problem) -> None:
    """Record what the run learns from; a resumed run must learn from the same."""
    candidates = problem.train_candidates
    for name, digest, context in (
        (data.name, data.digest(), "training"),
        (CANDIDATES_INPUT, candidates.content_hash, "labels"),
    ):
        before = {item["context"]: item["digest"] for item in tracked.folder.fact("inputs", [])}.get(context, digest)
        if before != digest:
            what = "the candidate sets" if context == "labels" else f"the data of {name}"
            raise DataError(
                f"{what} changed since run {tracked.run_id} began (digest {digest[:12]}, then {before[:12]}): restore "
                "what was there, or start a new run"
            )
        tracked.log_input(name, digest, context)
    path = tracked.folder.path / CANDIDATES_FILE
    if not path.exists():
        candidates.save(path)
        if candidates.nbytes <= MAX_LOGGED_CANDIDATES:
            tracked.log_file(path)


def _collect(
    config: RunConfig, tracker: Tracker, run_id: str, name: str, results: list[TrialOutcome], notes: tuple[str, ...]
) -> RunResult:
    finals = [{**result.final, "candidates/mean_size": result.mean_size} for result in results]
    shared = [key for key in finals[0] if all(key in final for final in finals)]
    columns = {key: [final[key] for final in finals] for key in shared}
    n = len(results)
    return RunResult(
        name=name,
        config=config,
        run_id=run_id,
        experiment=tracker.experiment,
        experiment_id=tracker.experiment_id,
        trials=tuple(summary.trial_facts(result) for result in results),
        mean={key: statistics.fmean(values) for key, values in columns.items()},
        stderr={key: statistics.stdev(v) / n**0.5 for key, v in columns.items()} if n > 1 else {},
        notes=notes,
    )


def _log_outcome(tracked: TrackedRun, result: RunResult, outcomes: list[TrialOutcome]) -> None:
    """Write the whole run's end down: on disk all of it before the result, whose presence means that it is complete."""
    tracked.folder.note(description=summary.describe_result(result))
    # A single trial has its means too, so that one column of the runs table compares all runs.
    means = {f"{key}_mean": value for key, value in result.mean.items()}
    errors = {f"{key}_stderr": value for key, value in result.stderr.items()}
    tracked.log_summary({**means, **errors}, result.config.training.epochs)
    if len(outcomes) > 1:
        records = [outcome.records for outcome in outcomes]
        tracked.log_figure(summary.curve_figure(records, result.name), "figures/learning_curve.png")
        if figure := trial_figures.confidence_figure(records, None, result.name):
            tracked.log_figure(figure, "figures/true_label_confidence.png")
    tracked.describe(summary.describe_result(result))
    tracked.folder.write_result(result.to_dict() if len(outcomes) > 1 else summary.trial_facts(outcomes[0]))


def check_tags(pairs: tuple[str, ...]) -> dict[str, str]:
    """Read 'key=value' tags."""
    tags = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--tag takes key=value, not {pair!r}")
        tags[key.strip()] = value
    return tags
