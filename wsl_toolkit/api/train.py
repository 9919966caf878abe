"""Experiments from Python: the same checks, the same training and the same record as `wsl run`."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import attrs

from wsl_toolkit.api.components import described, make_component, registry_with
from wsl_toolkit.api.data import as_data, dataset_of, default_data_dir, origin_of
from wsl_toolkit.api.result import Loaded, Result, Trial
from wsl_toolkit.components import Backbone, Callback, Component, Dataset, Estimator, Generator
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.given import Given
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs import loading, requests, runner, summary
from wsl_toolkit.runs.features import cache_in
from wsl_toolkit.runs.folder import RunFolder, find_folder
from wsl_toolkit.runs.plans import choices_in
from wsl_toolkit.runs.result import RunResult
from wsl_toolkit.runs.session import Parts
from wsl_toolkit.runs.tracked_trial import trial_problem
from wsl_toolkit.runs.tracking.store import HOME
from wsl_toolkit.training.build import check_training
from wsl_toolkit.training.config import DEFAULT_COMPONENTS, RunConfig, make_training
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.train import Trained, TrainingJob
from wsl_toolkit.training.train import train as train_jobs

log = logging.getLogger("wsl_toolkit")

Named = str | Mapping[str, Any]
"""A component by its name, or as a table with a name and parameters."""
DataLike = Data | Dataset | str | Path | tuple[Any, Any]
"""Data; a dataset, its name, or a file's path; or a pair of arrays (inputs, candidate sets or labels)."""
CallbackLike = Callback | Callable[[], Callback]
"""A callback; or, where there are several trials, what makes one for each (its class, for instance)."""


class Settings(TypedDict, total=False):
    """How to train: the settings of `wsl run`, under the same names (`wsl run --help`)."""

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    momentum: float
    optimizer: str | Mapping[str, Any]
    scheduler: str | Mapping[str, Any]
    warmup_epochs: int
    seed: int
    trials: int
    validation: float
    test: float
    subset: float
    device: str
    threads: int
    precision: str
    compile: bool
    deterministic: bool
    augmentation: str
    on_nan: str
    patience: int
    monitor: str
    keep: str


class _Listener:
    """Says notes through logging, and, if asked, a line an epoch on standard error."""

    def __init__(self, *, verbose: bool) -> None:
        self.verbose = verbose
        self.notes: list[str] = []
        self._labels: dict[int, str] = {}

    def features(self, done: int, of: int) -> None:
        """Print that features are there."""
        if self.verbose and done == of:
            print(f"features of {of} examples computed", file=sys.stderr)

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """Remember what to call a trial."""
        self._labels[number] = f"seed {seed}: " if of > 1 else ""

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """Print an epoch."""
        if self.verbose:
            shown = summary.shown(record.metrics)
            numbers = ", ".join(f"{label} {record.metrics[name]:.4f}" for name, label in shown.items())
            print(f"{self._labels.get(trial, '')}epoch {record.epoch}: {numbers}", file=sys.stderr)

    def result(self, result: RunResult) -> None:
        """Say nothing: the result is returned."""

    def note(self, text: str) -> None:
        """Pass a note on."""
        if text not in self.notes:
            self.notes.append(text)
            log.warning(text)


def train(
    data: DataLike = DEFAULT_COMPONENTS["dataset"],
    *,
    estimator: Named | Estimator = DEFAULT_COMPONENTS["estimator"],
    generator: Named | Generator | None = None,
    backbone: Named | Backbone = DEFAULT_COMPONENTS["backbone"],
    callbacks: Sequence[CallbackLike] = (),
    track: bool | str = False,
    experiment: str | None = None,
    tags: Mapping[str, str] | None = None,
    data_dir: str | Path | None = None,
    checkpoint_every: int | None = None,
    verbose: bool = False,
    **settings: Unpack[Settings],
) -> Result:
    """Train a classifier from candidate sets and evaluate it, as `wsl run` does and to the same bits.

    Components are given by name, as tables (`{"name": "mcl-skewed", "alpha": 0.7}`), or as objects. Where data has
    candidate sets of its own there is no generator. `track` is False (nothing is written), True (the store of `wsl
    run`: `wsl-runs/` here, or MLFLOW_TRACKING_URI), or the URI of an MLflow store; a tracked run is resumed, shown and
    compared like any other. `settings` are those of `wsl run`: `epochs`, `lr`, `seed`, `trials`, and so on.
    """
    known = as_data(data, data_dir)
    origin = origin_of(known)
    if generator is None and known.candidates is None:
        if origin is None:
            raise ConfigError(f"{known.name} has no candidate sets of its own: choose a generator")
        generator = DEFAULT_COMPONENTS["generator"]
    chosen: dict[str, Component] = {
        "estimator": make_component("estimator", estimator),
        "backbone": make_component("backbone", backbone),
    }
    if generator is not None:
        chosen["generator"] = make_component("generator", generator)
    components = {role: described(made) for role, made in chosen.items()}
    config = RunConfig(
        training=make_training(
            {key: value for key, value in settings.items() if value is not None}, "wsl_toolkit.train"
        ),
        components={"dataset": dataset_of(known), **components},
    )
    registry = registry_with(Given, *chosen.values())
    folder = origin.data_dir if origin is not None else default_data_dir(data_dir)
    listener = _Listener(verbose=verbose)
    make_callbacks = _callback_maker(callbacks, config.training.trials)
    if track is False:
        return _untracked(config, registry, known, folder, listener, make_callbacks)
    if origin is None:
        listener.note("the data was given as an object: this run can be resumed from Python alone")
    request = requests.new_run(
        config,
        experiment=experiment or (f"wsl-{known.name}" if origin is None else None),
        tracking_uri=None if track is True else track,
        data_dir=folder,
        tags=tags or {},
        note=listener.note,
    )
    return _tracked(request, registry, known, listener, make_callbacks, checkpoint_every)


def resume(
    run: str,
    *,
    data: DataLike | None = None,
    components: Sequence[Component | type[Component]] = (),
    callbacks: Sequence[CallbackLike] = (),
    tracking_uri: str | None = None,
    data_dir: str | Path | None = None,
    checkpoint_every: int | None = None,
    other_code: bool = False,
    verbose: bool = False,
) -> Result:
    """Go on with a run that was interrupted, begun here or by `wsl run`, to the same bits: its id, or its folder.

    `data` is needed only for a run that was given its data as an object, `components` for one that was given components
    which no plugin registers, `callbacks` where it had some; `other_code` goes on although the code has changed since.
    """
    known = None if data is None else as_data(data, data_dir)
    listener = _Listener(verbose=verbose)
    registry = registry_with(Given, *components)
    request = requests.resumed_run(
        run,
        registry,
        tracking_uri=tracking_uri,
        data_dir=None if data_dir is None else Path(data_dir),
        note=listener.note,
        has_data=known is not None,
        other_code=other_code,
    )
    make_callbacks = _callback_maker(callbacks, request["config"].training.trials)
    return _tracked(request, registry, known, listener, make_callbacks, checkpoint_every)


def load_run(
    run: str, *, data: DataLike | None = None, components: Sequence[Component | type[Component]] = ()
) -> Result:
    """Return a tracked run, by its id or its folder: history and metrics at once, the model when it is asked for.

    For the model, the run's data is loaded again; `data` and `components` are needed as for `resume`.
    """
    folder = find_folder(HOME, run)
    return _loaded(folder, registry_with(Given, *components), None if data is None else as_data(data))


def _callback_maker(callbacks: Sequence[CallbackLike], trials: int) -> Callable[[], list[Callback]]:
    """Return what gives each trial its callbacks: an object hears of one training only."""
    objects = [each for each in callbacks if isinstance(each, Callback)]
    if trials > 1 and objects:
        raise ConfigError(
            f"{trials} trials need {trials} callbacks: give the class {type(objects[0]).__name__}, or a function that "
            "makes one, instead of an object"
        )

    def make() -> list[Callback]:
        return [each if isinstance(each, Callback) else each() for each in callbacks]

    return make


def _untracked(
    config: RunConfig,
    registry: Registry,
    data: Data,
    data_dir: Path,
    listener: _Listener,
    make_callbacks: Callable[[], list[Callback]],
) -> Result:
    config = config.resolved(registry)
    check_training(config.training)
    # Nothing is written; features that are in the workspace already are used.
    cache = cache_in(HOME, writes=False)
    parts = runner.load_parts(config, registry, data_dir, data, cache=cache, tell=listener.features)
    listening = [*config.create_callbacks(registry), *make_callbacks()]
    notes = summary.notes(parts.estimator, parts.generator, listening)
    for note in [*notes, *runner.slips(config, registry)]:
        listener.note(note)
    config = attrs.evolve(config, components=runner.used_components(config, parts))
    name = summary.run_name(config, registry)
    seeds = range(config.training.seed, config.training.seed + config.training.trials)
    jobs = [
        _job(config, registry, parts, seed, [*config.create_callbacks(registry), *make_callbacks()]) for seed in seeds
    ]
    with runner.at_fault(config, registry):
        trained = train_jobs(jobs, note=listener.note, choices=choices_in(HOME, writes=False))
    trials = [_trained_trial(found, config, registry, parts, name) for found in trained]
    return Result(name=name, config=config, trials=trials, notes=notes)


def _trained_trial(found: Trained, config: RunConfig, registry: Registry, parts: Parts, name: str) -> Trial:
    def load() -> Loaded:
        return found.model, _problem(config, registry, parts, found.seed), parts.data

    return Trial(found, config, name, load)


def _problem(config: RunConfig, registry: Registry, parts: Parts, seed: int) -> Problem:
    with contextlib.ExitStack() as guards:
        for component in filter(None, (parts.generator, parts.transform)):
            guards.enter_context(attributed(registry, component.role, component.name))
        return trial_problem(config, parts, seed)


def _job(config: RunConfig, registry: Registry, parts: Parts, seed: int, callbacks: Sequence[Callback]) -> TrainingJob:
    return TrainingJob(
        problem=lambda: _problem(config, registry, parts, seed),
        estimator=parts.estimator,
        backbone=parts.backbone,
        training=attrs.evolve(config.training, seed=seed, trials=1),
        seed=seed,
        callbacks=callbacks,
    )


def _tracked(
    request: dict[str, Any],
    registry: Registry,
    data: Data | None,
    listener: _Listener,
    make_callbacks: Callable[[], list[Callback]],
    checkpoint_every: int | None,
) -> Result:
    result = runner.run(
        registry=registry,
        listener=listener,
        checkpoint_every=checkpoint_every,
        data=data,
        callbacks=make_callbacks,
        **request,
    )
    home = request["folder"].home if "folder" in request else HOME
    return _loaded(find_folder(home, result.run_id), registry, data, result.notes)


def _loaded(folder: RunFolder, registry: Registry, data: Data | None, notes: Sequence[str] = ()) -> Result:
    config = loading.config_of(folder)
    name = str(folder.fact("name") or folder.run_id)
    said = folder.fact("tags", {}).get("wsl.notes")
    trials = [_loaded_trial(found, registry, data, name) for found in loading.trial_folders(folder)]
    return Result(
        name=name,
        config=config,
        trials=trials,
        notes=notes or ([said] if said else []),
        run_id=folder.run_id,
        status=folder.fact("status"),
    )


def _loaded_trial(folder: RunFolder, registry: Registry, data: Data | None, name: str) -> Trial:
    config = loading.config_of(folder)

    def load() -> Loaded:
        complete = config.resolved(registry)
        cache = cache_in(folder.home, writes=False)
        parts = runner.load_parts(complete, registry, loading.data_dir_of(folder), data, cache=cache)
        model, problem = loading.trial_model(folder, complete, parts)
        return model, problem, parts.data

    return Trial(loading.outcome_of(folder), config, name, load)
