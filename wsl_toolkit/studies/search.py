"""How points of the search space are proposed: a grid by hand; random and TPE by Optuna, replayed from results.

Optuna's samplers are deterministic in their seed and in what they are told. Points are proposed in batches and told
in order, so asking again with the results on disk gives the same points: a search needs no storage of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.studies.description import Search
from wsl_toolkit.studies.jobs import PRUNED

Point = dict[str, Any]
Outcome = tuple[str, float | None, list[float]]
"""A point's status, its goodness (more is better) and its goodness epoch by epoch."""


def grid(space: dict[str, Any]) -> list[Point]:
    """Return all combinations, the last name varying fastest; an empty space has one point."""
    return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]


def proposals(
    search: Search, space: dict[str, Any], seed: int, outcome: Callable[[Point, list[Point]], Outcome | None]
) -> tuple[list[Point], bool]:
    """Return the points proposed so far, and whether there will be no more.

    `outcome(point, earlier)` is what is known of a point, given the points that were complete when it was proposed;
    None if it is not known yet, in which case no batch is proposed beyond its own.
    """
    if search.strategy == "grid" or not space:
        return grid(space), True
    return _sampled(search, space, seed, outcome)


def _sampled(
    search: Search, space: dict[str, Any], seed: int, outcome: Callable[[Point, list[Point]], Outcome | None]
) -> tuple[list[Point], bool]:
    optuna = import_optuna()
    sampler = optuna.samplers.TPESampler if search.strategy == "tpe" else optuna.samplers.RandomSampler
    study = optuna.create_study(direction="maximize", sampler=sampler(seed=seed))
    points: list[Point] = []
    while len(points) < search.points:
        earlier = list(points)
        trials = [study.ask() for _ in range(min(search.batch, search.points - len(points)))]
        batch = [{name: _suggest(trial, name, values) for name, values in space.items()} for trial in trials]
        points += batch
        outcomes = [outcome(point, earlier) for point in batch]
        if any(known is None for known in outcomes):
            return points, False
        for trial, known in zip(trials, outcomes, strict=True):
            assert known is not None
            status, goodness, steps = known
            for step, value in enumerate(steps, start=1):
                trial.report(value, step)
            states = optuna.trial.TrialState
            if status == PRUNED:
                study.tell(trial, state=states.PRUNED)
            elif goodness is None:
                study.tell(trial, state=states.FAIL)
            else:
                study.tell(trial, goodness)
    return points, True


def _suggest(trial: Any, name: str, values: Any) -> Any:
    if isinstance(values, list):
        return trial.suggest_categorical(name, values)
    low, high, log = values["low"], values["high"], bool(values.get("log", False))
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=log)
    return trial.suggest_float(name, float(low), float(high), log=log)


def import_optuna() -> Any:
    """Import Optuna, or say how to get it."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            'random, tpe and pruning come from Optuna, which is not installed: pip install "wsl-toolkit[search]"'
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Pruner:
    """Optuna's median pruner, given the histories of the points that were complete before this one."""

    def __init__(self, histories: list[list[float]]) -> None:
        optuna = import_optuna()
        self.study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=4))
        for steps in histories:
            if not steps:
                continue
            known = optuna.trial.create_trial(value=steps[-1], intermediate_values=dict(enumerate(steps, start=1)))
            self.study.add_trial(known)
        self.trial = self.study.ask()

    def hopeless(self, epoch: int, goodness: float) -> bool:
        """Take an epoch's value and say whether to stop."""
        self.trial.report(goodness, epoch)
        return bool(self.trial.should_prune())
