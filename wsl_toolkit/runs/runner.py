"""A run: configuration -> seeded problems -> `training.train` -> records, tracking, figures -> result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.components import ROLES, Backbone, Callback
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.loading import load_data
from wsl_toolkit.errors import CheckpointError, ConfigError, DivergedError, InterruptedRunError
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.class_checks import suspicions
from wsl_toolkit.plugins.code_identity import PROVENANCE, changes, code_of, digest_of, named_in, provenance, require
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs import summary, trial_figures
from wsl_toolkit.runs.feature_cache import FeatureCache
from wsl_toolkit.runs.features import FeatureMaker, cache_in, check_frozen, freeze
from wsl_toolkit.runs.folder import RunFolder, children_of
from wsl_toolkit.runs.plans import choices_in
from wsl_toolkit.runs.result import RunResult
from wsl_toolkit.runs.session import Listener, Parts, Session, tracked_in
from wsl_toolkit.runs.tracked_trial import TrackedTrial, finished_trial, trial_problem
from wsl_toolkit.runs.tracking.runs_table import table_numbers, table_tags
from wsl_toolkit.runs.tracking.store import HOME, RunFacts, Tracker
from wsl_toolkit.runs.tracking.tracked_run import TrackedRun
from wsl_toolkit.system import environment
from wsl_toolkit.system.figure_style import png
from wsl_toolkit.system.memory import explain_memory
from wsl_toolkit.system.signals import listening
from wsl_toolkit.system.statistics import mean_and_error
from wsl_toolkit.system.toml_files import read_toml
from wsl_toolkit.training.build import check_training
from wsl_toolkit.training.config import RunConfig, from_dict
from wsl_toolkit.training.distributed import Ranks
from wsl_toolkit.training.features import Tell
from wsl_toolkit.training.metrics import MEAN_SIZE
from wsl_toolkit.training.train import TrainingJob, TrialOutcome, train


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
    folder: RunFolder | None = None,
    other_code: bool = False,
    data: Data | None = None,
    callbacks: Callable[[], Sequence[Callback]] = list,
) -> RunResult:
    """Run a configuration: one run for one trial, or a parent with a child for each of several.

    With a `folder`, go on with its run from the newest checkpoints, to the same bits; under other code than it was made
    by so far, only if `other_code` says so. The store is opened only when configuration and data are known to be sound,
    so that a mistake records nothing. Of several `ranks` the first calls this, and the others `follow`. `data` is what
    the configuration names, where it is loaded already; `callbacks` makes those of each trial.
    """
    config = config.resolved(registry)
    check_training(config.training)
    if ranks is not None:
        ranks.agree("versions", environment.versions())
        ranks.tell({"config": config.to_dict(), "data_dir": str(data_dir)})
        ranks.agree("code", digest_of(installed_code(config, registry)))
    cache = cache_in(HOME if folder is None else folder.home)
    parts = load_parts(config, registry, data_dir, data, cache=cache, tell=listener.features)
    parts.backbone.check_start()
    config = attrs.evolve(config, components=used_components(config, parts))
    codes = codes_of(folder, installed_code(config, registry), other_code=other_code)
    tracker = open_tracker()
    callers = [*config.create_callbacks(registry), *callbacks()]
    notes = summary.notes(parts.estimator, parts.generator, callers)
    for note in [*notes, *slips(config, registry), *unused(config, parts)]:
        listener.note(note)
    parent = folder.fact("parent") if folder else None
    facts = _facts(config, registry, parts, notes, codes=codes, tags=tags, parent=parent)
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
            callbacks=callbacks,
        )
        with tracked_in(session, facts, config, folder) as tracked, contextlib.ExitStack() as children:
            trials, outcomes = _trials(session, facts, tracked, children, resumed=folder is not None)
            if ranks is not None:
                ranks.tell([trial.seed for trial in trials])
            with at_fault(config, registry):
                trained = train(
                    [trial.job() for trial in trials],
                    stop=stop,
                    ranks=ranks,
                    note=listener.note,
                    choices=choices_in(HOME if folder is None else folder.home, listener.note),
                )
            outcomes |= {each.seed: each for each in trained}
            result = _collect(config, tracker, tracked.run_id, facts.name, outcomes, notes)
            listener.result(result)  # nobody waits for figures and a model to see it
            if config.training.trials == 1:
                trials[0].complete(trained[0])
            _log_outcome(tracked, result, [outcomes[seed] for seed in sorted(outcomes)])
    return result


def _facts(
    config: RunConfig,
    registry: Registry,
    parts: Parts,
    notes: tuple[str, ...],
    *,
    codes: list[dict[str, str]],
    tags: dict[str, str],
    parent: str | None,
) -> RunFacts:
    """Return what the store is told of a run when it begins."""
    name = summary.run_name(config, registry)
    verdict, columns = summary.verdict(notes), table_tags(config.components)
    return RunFacts(
        name=name,
        params=config.flat(),
        tags={**environment.tags(), **verdict, **columns, **tags, **provenance(codes[-1])},
        description=summary.describe_start(name, parts.estimator, notes),
        parent=parent,
        codes=codes,
    )


def unused(config: RunConfig, parts: Parts) -> list[str]:
    """Return what was asked for and changes nothing."""
    if config.training.augmentation == "none" or not parts.estimator.has_views():
        return []
    return [f"{parts.estimator.name} looks at views of its own: --augmentation changes nothing"]


def slips(config: RunConfig, registry: Registry) -> list[str]:
    """Return what looks like a mistake in the classes of a run's components."""
    return [each for role, (name, _) in config.components.items() for each in suspicions(registry.get(role, name))]


@contextlib.contextmanager
def at_fault(config: RunConfig, registry: Registry) -> Iterator[None]:
    """Train; name the component that fails, and what to do if memory does not suffice."""
    advice = f"lower --batch-size (now {config.training.batch_size}), or choose a smaller --backbone or less data"
    with (
        explain_memory(advice),
        attributed(registry, "backbone", config.components["backbone"][0]),
        attributed(registry, "estimator", config.components["estimator"][0]),
    ):
        yield


def interrupted(folder: RunFolder, registry: Registry) -> RunConfig:
    """Return the configuration of a run to go on with; refuse one that is complete, or whose plugin is gone."""
    if folder.result() is not None:
        raise ConfigError(f"run {folder.run_id} is complete: there is nothing to resume")
    file = folder.path / "config.toml"
    config = from_dict(read_toml(file), str(file))
    recorded = _recorded(folder, config)
    require(registry, recorded, f"run {folder.run_id}")
    named = {f"{role} {name}" for role, name in named_in(config.to_dict(), registry)}
    if lost := sorted(key for key in recorded if key.partition(" ")[0] in ROLES and key not in named):
        raise ConfigError(
            f"{file} does not name {lost[0]}, which run {folder.run_id} began with: restore it, or start a new run"
        )
    return config


def _recorded(folder: RunFolder, config: RunConfig) -> dict[str, str]:
    """Return which code a run was made by; of release 0.1 its tags tell who provided the components."""
    if codes := folder.fact("codes", []):
        return dict(codes[-1])
    tags = folder.fact("tags", {})
    named = {role: name for role, (name, _) in config.components.items()}
    return {f"{role} {name}": tag for role, name in named.items() if (tag := tags.get(f"{PROVENANCE}{role}"))}


def installed_code(config: RunConfig, registry: Registry) -> dict[str, str]:
    """Return which code is installed of all that a configuration names."""
    return code_of(registry, named_in(config.to_dict(), registry))


def codes_of(folder: RunFolder | None, code: dict[str, str], *, other_code: bool) -> list[dict[str, str]]:
    """Return the code that a run is made by, the present one last; refuse to go on under another unless told to."""
    before = folder.fact("codes", []) if folder is not None else []
    if folder is None or not before:  # a new run, or one of release 0.1, which did not say
        return [code]
    if before[-1] == code:
        return [*before]
    if not other_code:
        what = "; ".join(changes(before[-1], code))
        raise CheckpointError(
            f"run {folder.run_id} was made by other code so far than is installed ({what}): install what it was made "
            "by, start a new run, or go on with --other-code, which the run's tags then say"
        )
    return [*before, code]


def follow(registry: Registry, ranks: Ranks) -> None:
    """Do another rank's part of a run: the same trials on the same problems, but no files and no tracking."""
    ranks.agree("versions", environment.versions())
    told = ranks.tell()
    config = from_dict(told["config"], "rank 0's configuration").resolved(registry)
    ranks.agree("code", digest_of(installed_code(config, registry)))
    parts = load_parts(config, registry, Path(told["data_dir"]), cache=cache_in(HOME))
    seeds = ranks.tell()
    jobs = [
        TrainingJob(
            problem=lambda seed=seed: trial_problem(config, parts, seed),  # type: ignore[misc]
            estimator=parts.estimator,
            backbone=parts.backbone,
            training=config.training,
            seed=seed,
            callbacks=config.create_callbacks(registry),
        )
        for seed in seeds
    ]
    # What ends all ranks alike is rank 0's to report.
    with listening() as stop, contextlib.suppress(InterruptedRunError, DivergedError):
        train(jobs, stop=stop, ranks=ranks)


def load_parts(
    config: RunConfig,
    registry: Registry,
    data_dir: Path,
    data: Data | None = None,
    *,
    cache: FeatureCache,
    tell: Tell = lambda done, of: None,
) -> Parts:
    """Create the components and load the data; a generator is dropped where the data brings its own sets.

    Of a frozen backbone, the parts are its features, which are computed unless the cache has them, and its head.
    """
    backbone: Backbone = config.create("backbone", registry)
    check_frozen(backbone, config.training)  # before anything is read
    if data is None:
        with attributed(registry, "dataset", config.components["dataset"][0]):
            data = load_data(config.create("dataset", registry), data_dir)
    maker = FeatureMaker(registry=registry, data_dir=data_dir, cache=cache, device=config.training.device, tell=tell)
    data, backbone = freeze(data, backbone, config.training, maker)
    return Parts(
        data=data,
        generator=None if data.candidates is not None else config.create("generator", registry),
        estimator=config.create("estimator", registry),
        backbone=backbone,
        transform=config.create("transform", registry) if "transform" in config.components else None,
    )


def used_components(config: RunConfig, parts: Parts) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the components without the generator that the data made idle."""
    idle = {"generator"} if parts.generator is None else set()
    return {role: value for role, value in config.components.items() if role not in idle}


def _trials(
    session: Session, facts: RunFacts, tracked: TrackedRun, children: contextlib.ExitStack, *, resumed: bool
) -> tuple[list[TrackedTrial], dict[int, TrialOutcome]]:
    """Return the trials that are left to train, and by their seeds those that are complete on disk."""
    config = session.config
    seeds = range(config.training.seed, config.training.seed + config.training.trials)
    if len(seeds) == 1:
        trial = TrackedTrial(session, config, number=1, of=1)
        trial.tracked = tracked
        return [trial], {}
    begun = children_of(tracked.folder) if resumed else {}
    found: list[TrackedTrial] = []
    done: dict[int, TrialOutcome] = {}
    for number, seed in enumerate(seeds, start=1):
        child = begun.get(seed)
        outcome = finished_trial(child, config.training.epochs) if child is not None else None
        if outcome is not None:
            session.listener.trial(number, len(seeds), seed, config.training.epochs)
            session.listener.epoch(outcome.records[-1], number)
            done[seed] = outcome
            continue
        one = attrs.evolve(config, training=attrs.evolve(config.training, seed=seed, trials=1))
        trial = TrackedTrial(session, one, number=number, of=len(seeds))
        about = attrs.evolve(facts, name=f"{facts.name} | seed {seed}", params=one.flat(), parent=tracked.run_id)
        trial.opens(children, lambda one=one, about=about, child=child: tracked_in(session, about, one, child))  # type: ignore[misc]
        found.append(trial)
    return found, done


def _collect(
    config: RunConfig,
    tracker: Tracker,
    run_id: str,
    name: str,
    outcomes: dict[int, TrialOutcome],
    notes: tuple[str, ...],
) -> RunResult:
    results = [outcomes[seed] for seed in sorted(outcomes)]
    finals = [{**result.final, MEAN_SIZE: result.mean_size} for result in results]
    shared = [key for key in finals[0] if all(key in final for final in finals)]
    columns = {key: [final[key] for final in finals] for key in shared}
    found = {key: mean_and_error(values) for key, values in columns.items()}
    return RunResult(
        name=name,
        config=config,
        run_id=run_id,
        experiment=tracker.experiment,
        experiment_id=tracker.experiment_id,
        trials=tuple(summary.trial_facts(result) for result in results),
        mean={key: mean for key, (mean, _) in found.items()},
        stderr={key: error for key, (_, error) in found.items() if error is not None},
        notes=notes,
    )


def _log_outcome(tracked: TrackedRun, result: RunResult, outcomes: list[TrialOutcome]) -> None:
    """Write the whole run's end down: on disk all of it before the result, whose presence means that it is complete."""
    tracked.folder.note(description=summary.describe_result(result))
    # A single trial has its means too, so that one column of the runs table compares all runs.
    means = {f"{key}_mean": value for key, value in result.mean.items()}
    errors = {f"{key}_stderr": value for key, value in result.stderr.items()}
    row = table_numbers([outcome.final for outcome in outcomes])
    tracked.log_summary({**means, **errors, **row}, max(len(outcome.records) for outcome in outcomes))
    if len(outcomes) > 1:
        records = [outcome.records for outcome in outcomes]
        tracked.log_picture(png(summary.curve_figure(records, result.name)), "figures/learning_curve.png")
        if figure := trial_figures.confidence_figure(records, None, result.name):
            tracked.log_picture(png(figure), "figures/true_label_confidence.png")
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
