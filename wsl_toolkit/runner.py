"""A run: configuration -> seeded objects -> engine -> records and tracking -> result."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import attrs

from wsl_toolkit import environment, summary
from wsl_toolkit.blame import blame
from wsl_toolkit.components import Backbone, Estimator, Generator
from wsl_toolkit.config import RunConfig
from wsl_toolkit.data import Data
from wsl_toolkit.engine import EpochRecord
from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.problem import Problem, make_problem
from wsl_toolkit.records import RunFolder
from wsl_toolkit.registry import Registry
from wsl_toolkit.result import RunResult
from wsl_toolkit.tracking import CANDIDATES_FILE, RunFacts, TrackedRun, Tracker
from wsl_toolkit.trial import TrialResult, check_training, run_trial

MAX_LOGGED_CANDIDATES = 64 * 2**20
"""Candidate sets larger than this are tracked by their hash alone."""


class Listener(Protocol):
    """Whoever shows a run's progress."""

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """A trial begins."""

    def epoch(self, record: EpochRecord) -> None:
        """An epoch ended."""

    def note(self, text: str) -> None:
        """Something that the user should know, said once."""


@attrs.frozen(kw_only=True)
class Parts:
    """The configured components of a run; there is no generator where the data has candidate sets."""

    data: Data
    generator: Generator | None
    estimator: Estimator
    backbone: Backbone


def run(
    config: RunConfig,
    registry: Registry,
    open_tracker: Callable[[], Tracker],
    listener: Listener,
    *,
    data_dir: Path,
    tags: dict[str, str],
) -> RunResult:
    """Carry out a configuration, one run for one trial, or a parent with a child for each of several.

    The store is opened only when configuration and data are known to be sound, so that a mistake records nothing.
    """
    config = config.resolved(registry)
    check_training(config.training)
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
    )
    seeds = range(config.training.seed, config.training.seed + config.training.trials)
    results: list[TrialResult] = []
    with _tracked(tracker, facts, config, listener) as (tracked, folder):
        for number, seed in enumerate(seeds, start=1):
            listener.trial(number, len(seeds), seed, config.training.epochs)
            if len(seeds) == 1:
                results.append(_trial(config, registry, parts, seed, tracked, folder, listener))
                continue
            one = attrs.evolve(config, training=attrs.evolve(config.training, seed=seed, trials=1))
            child = attrs.evolve(facts, name=f"{facts.name} | seed {seed}", params=one.flat(), parent=tracked.run_id)
            with _tracked(tracker, child, one, listener) as (child_run, child_folder):
                results.append(_trial(one, registry, parts, seed, child_run, child_folder, listener))
        result = _collect(config, tracker, tracked.run_id, facts.name, results, notes)
        # A single trial has its means too, so that one column of the runs table compares all runs.
        tracked.log_metrics({f"{k}_mean": v for k, v in result.mean.items()}, config.training.epochs)
        tracked.log_metrics({f"{k}_stderr": v for k, v in result.stderr.items()}, config.training.epochs)
        _log_outcome(tracked, folder, result, results)
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


def _trial(
    config: RunConfig,
    registry: Registry,
    parts: Parts,
    seed: int,
    tracked: TrackedRun,
    folder: RunFolder,
    listener: Listener,
) -> TrialResult:
    problem = _problem(config, registry, parts, seed)
    _log_inputs(tracked, folder, parts.data, problem)

    def on_epoch(record: EpochRecord) -> None:
        folder.append(record)
        tracked.log_epoch(record)
        listener.epoch(record)

    names = {role: name for role, (name, _) in config.components.items()}
    with blame(registry, "backbone", names["backbone"]), blame(registry, "estimator", names["estimator"]):
        result = run_trial(problem, parts.estimator, parts.backbone, config.training, seed, on_epoch)
    tracked.flush()
    tracked.log_figure(summary.curve_figure([result.records], summary.run_name(config)), "figures/learning_curve.png")
    tracked.log_model(*summary.deployable(result.model, problem, parts.data))
    folder.write_result(summary.trial_facts(result))
    return result


def _problem(config: RunConfig, registry: Registry, parts: Parts, seed: int) -> Problem:
    wanted = config.training
    guard = blame(registry, "generator", parts.generator.name) if parts.generator else contextlib.nullcontext()
    with guard:
        return make_problem(parts.data, parts.generator, seed=seed, validation=wanted.validation, test=wanted.test)


def _log_inputs(tracked: TrackedRun, folder: RunFolder, data: Data, problem: Problem) -> None:
    candidates = problem.train_candidates
    tracked.log_input(data.name, data.digest(), "training")
    tracked.log_input("candidate-sets", candidates.content_hash, "labels")
    if candidates.nbytes <= MAX_LOGGED_CANDIDATES:
        path = folder.path / CANDIDATES_FILE
        candidates.save(path)
        tracked.log_file(path)


def _collect(
    config: RunConfig, tracker: Tracker, run_id: str, name: str, results: list[TrialResult], notes: tuple[str, ...]
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


def _log_outcome(tracked: TrackedRun, folder: RunFolder, result: RunResult, results: list[TrialResult]) -> None:
    if len(results) > 1:
        figure = summary.curve_figure([r.records for r in results], result.name)
        tracked.log_figure(figure, "figures/learning_curve.png")
        folder.write_result(result.to_dict())
    tracked.describe(summary.describe_result(result))


@contextlib.contextmanager
def _tracked(
    tracker: Tracker, facts: RunFacts, config: RunConfig, listener: Listener
) -> Iterator[tuple[TrackedRun, RunFolder]]:
    """Open a run and its folder, and end it truthfully: FINISHED, KILLED by the user, or FAILED with its message."""
    tracked = tracker.start(facts)
    folder = RunFolder(tracker.home, tracked.run_id)
    folder.write_config(config.to_toml())
    tracked.log_text(config.to_toml(), "config.toml")
    try:
        yield tracked, folder
    except KeyboardInterrupt:
        tracked.finish("KILLED")
        raise
    except BaseException as error:
        tracked.describe(f"**Failed**: {one_line(error)}")
        tracked.finish("FAILED")
        raise
    tracked.finish("FINISHED")
    if tracked.warning:
        listener.note(f"{tracked.warning}; the full record is in {folder.path}")


def check_tags(pairs: tuple[str, ...]) -> dict[str, str]:
    """Read 'key=value' tags."""
    tags = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--tag takes key=value, not {pair!r}")
        tags[key.strip()] = value
    return tags
