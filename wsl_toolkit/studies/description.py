"""A study's description: settings x methods x search space x trials, and the rule that selects; frozen.

Nothing here imports torch: descriptions are read, listed and checked without it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import attrs

from wsl_toolkit.errors import ConfigError, did_you_mean
from wsl_toolkit.parameters import param, plain, values_of
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.studies.checks import check_space, refuse_overridden, shown
from wsl_toolkit.studies.rule import Selection
from wsl_toolkit.training.config import RunConfig, make_training, read_callbacks

STRATEGIES = ("grid", "random", "tpe")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MOST_NAME, MOST_LABEL, MOST_TRIALS = 100, 200, 10_000
MOST_SETTINGS, MOST_POINTS, MOST_RUNS = 10_000, 100_000, 10_000_000
"""More than this is a slip of the hand: refused before it is counted out."""
T = TypeVar("T")
Component = tuple[str, dict[str, Any]]
"""A component's name and the parameter values that the description gives."""


@attrs.frozen(kw_only=True)
class Search:
    """What is searched and how: a grid by hand, or Optuna's random and TPE samplers."""

    strategy: str = param("grid", help="how points are proposed", choices=STRATEGIES)
    epochs: int | None = param(None, help="epochs of a search run; as many as a trial's if not given", ge=1)
    points: int = param(36, help="how many points random and tpe propose", ge=1, le=MOST_POINTS)
    batch: int = param(6, help="how many points are proposed before any of them is known", ge=1, le=MOST_POINTS)
    prune: bool = param(False, help="stop hopeless points early (Optuna's median pruner; random and tpe only)")
    space: dict[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        check_space(self.space, grid=self.strategy == "grid")
        if self.prune and self.strategy == "grid":
            raise ConfigError("search: prune needs strategy = 'random' or 'tpe': a grid visits every point")


@attrs.frozen(kw_only=True)
class StudySetting:
    """One learning problem: data, how sets come about (none where the data has its own), and the network."""

    dataset: Component
    generator: Component | None
    backbone: Component
    training: dict[str, Any] = attrs.field(factory=dict)
    name: str | None = None
    """What the data is called in tables, where its component's name says too little (`mat`)."""
    trials: int | None = None
    """How many trials it has where that differs from the study's, because it is expensive."""

    @property
    def fixed(self) -> list[str]:
        """The names, as a search space has them, of the values that the description gives to this setting."""
        roles = {"dataset": self.dataset, "generator": self.generator, "backbone": self.backbone}
        components = [f"{role}.{key}" for role, component in roles.items() if component for key in component[1]]
        return [*self.training, *components]

    @property
    def data_label(self) -> str:
        """What the data is called."""
        return self.name or component_label(self.dataset)

    @property
    def sets_label(self) -> str:
        """How the candidate sets come about."""
        if self.generator is None:
            return "own sets"
        alpha = self.generator[1].get("alpha")
        only_alpha = set(self.generator[1]) == {"alpha"} and isinstance(alpha, int | float)
        return f"α = {alpha:g}" if only_alpha else component_label(self.generator)

    @property
    def label(self) -> str:
        """A name of the components and the values that were given."""
        sets = component_label(self.generator) if self.generator else None
        return " | ".join(part for part in (self.data_label, sets, component_label(self.backbone)) if part)


@attrs.frozen(kw_only=True)
class Method:
    """An estimator, what it is called in tables, and what is searched or fixed for it alone."""

    estimator: Component
    label: str
    transform: Component | None = None
    """What happens to the candidate sets before it learns from them."""
    training: dict[str, Any] = attrs.field(factory=dict)
    space: dict[str, Any] = attrs.field(factory=dict)

    @property
    def fixed(self) -> list[str]:
        """The names, as a search space has them, of the values that the description gives to its components."""
        roles = {"estimator": self.estimator, "transform": self.transform}
        return [f"{role}.{key}" for role, component in roles.items() if component for key in component[1]]


@attrs.frozen(kw_only=True)
class Study:
    """Settings x methods x search space x trials x selection rule."""

    name: str
    title: str = ""
    settings: tuple[StudySetting, ...]
    methods: tuple[Method, ...]
    training: dict[str, Any] = attrs.field(factory=dict)
    search: Search = attrs.field(factory=Search)
    selection: Selection = attrs.field(factory=Selection)
    trials: int = param(
        1, help="how many seeds, each with its own split and sets, shared by all methods", ge=1, le=MOST_TRIALS
    )
    seed: int = param(0, help="the first seed", ge=0, le=2**62)
    paper_table: int | None = param(None, help="the table of the paper whose numbers stand beside ours")
    quick: dict[str, Any] = attrs.field(factory=dict)
    """What `--quick` changes, as in the description itself."""

    def __attrs_post_init__(self) -> None:
        check_name(self.name)
        for what, items in (("settings", self.settings), ("methods", self.methods)):
            if not items:
                raise ConfigError(f"study {self.name}: there are no {what}")
        self._check_labels()
        self._check_searches()

    def _check_labels(self) -> None:
        """Refuse names that stand for two things: tables and results tell cells apart by them."""
        methods, settings = [m.label for m in self.methods], [s.label for s in self.settings]
        for what, labels in (("methods", methods), ("settings", settings)):
            if repeated := next((label for label in labels if labels.count(label) > 1), None):
                raise ConfigError(
                    f"study {self.name}: two {what} are labelled {repeated!r}; give each a label of its own"
                )
            if long := next((label for label in labels if len(label) > MOST_LABEL), None):
                raise ConfigError(
                    f"study {self.name}: {long[:40]!r}… is a label of {len(long)} characters; {MOST_LABEL} is the most"
                )
        data: dict[str, Component] = {}
        for setting in self.settings:
            if data.setdefault(setting.data_label, setting.dataset) != setting.dataset:
                raise ConfigError(f"study {self.name}: two datasets are labelled {setting.data_label!r}")

    def _check_searches(self) -> None:
        """Refuse searches that cannot be, and values that a search would override silently."""
        for method in self.methods:
            check_space(method.space, grid=self.search.strategy == "grid")
            space = {*self.search.space, *method.space}
            if "epochs" in space and self.search.epochs is not None:
                raise ConfigError(
                    f"study {self.name}: epochs are searched, and [search] epochs fixes them: leave one out"
                )
            self._check_size(method)
            owner = f"study {self.name}: method {method.label}"
            refuse_overridden(owner, [*method.training, *method.fixed], space)
            for setting in self.settings:
                refuse_overridden(f"study {self.name}: setting {setting.label}", setting.fixed, space)

    def _check_size(self, method: Method) -> None:
        """Refuse a search, or a study, of more runs than anybody can mean."""
        space = {**self.search.space, **method.space}
        grid = math.prod(len(values) for values in space.values()) if self.search.strategy == "grid" else 0
        if grid > MOST_POINTS:
            raise ConfigError(
                f"study {self.name}: the grid of {method.label} has {grid} points; {MOST_POINTS} is the most: "
                "list fewer values, or let strategy = 'random' propose some"
            )
        points = max(grid, self.search.points if space else 0) * self.selection.folds
        searches = self.trials if self.selection.per_trial else 1
        if (runs := len(self.settings) * len(self.methods) * (points * searches + self.trials)) > MOST_RUNS:
            raise ConfigError(f"study {self.name} would have some {runs} runs; {MOST_RUNS} is the most")

    @property
    def trials_words(self) -> str:
        """How many trials a cell has, as people say it: '5 trials', '3 to 10 trials'."""
        counts = {setting.trials or self.trials for setting in self.settings}
        most = f"{max(counts)} trial{'s' if max(counts) > 1 else ''}"
        return most if len(counts) == 1 else f"{min(counts)} to {most}"

    def cells(self) -> Iterator[Cell]:
        """Yield every setting with every method, setting by setting, so that early results make whole rows."""
        for setting, method in itertools.product(self.settings, self.methods):
            yield Cell(study=self, setting=setting, method=method)

    def to_dict(self) -> dict[str, Any]:
        """Return the description for TOML; `from_dict` reads it back to an equal one."""
        settings = [
            {
                "dataset": _table(s.dataset),
                **({"generator": _table(s.generator)} if s.generator else {}),
                "backbone": _table(s.backbone),
                **({"training": s.training} if s.training else {}),
                **({"label": s.name} if s.name else {}),
                **({"trials": s.trials} if s.trials else {}),
            }
            for s in self.settings
        ]
        methods = [
            {
                "estimator": _table(m.estimator),
                "label": m.label,
                **({"transform": _table(m.transform)} if m.transform else {}),
                **({"training": m.training} if m.training else {}),
                **({"search": m.space} if m.space else {}),
            }
            for m in self.methods
        ]
        search = {key: value for key, value in values_of(self.search).items() if value is not None}
        scalars = {"name": self.name, "title": self.title, "trials": self.trials, "seed": self.seed}
        return {
            **scalars,
            **({"paper_table": self.paper_table} if self.paper_table else {}),
            "training": self.training,
            "search": {**search, "space": self.search.space},
            "selection": values_of(self.selection),
            "settings": settings,
            "methods": methods,
            **({"quick": self.quick} if self.quick else {}),
        }


@attrs.frozen(kw_only=True)
class Cell:
    """One setting with one method: what a table shows in one place."""

    study: Study
    setting: StudySetting
    method: Method

    @property
    def label(self) -> str:
        """A name for people."""
        return f"{self.method.label} | {self.setting.label}"

    @property
    def named(self) -> list[tuple[str, str]]:
        """The roles and names of its components."""
        setting = self.setting
        roles = {"dataset": setting.dataset, "generator": setting.generator, "backbone": setting.backbone}
        return [(role, part[0]) for role, part in [*roles.items(), ("estimator", self.method.estimator)] if part]

    @property
    def space(self) -> dict[str, Any]:
        """What is searched for this method, by name: samplers are asked in this order, whatever a file's order is."""
        return dict(sorted({**self.study.search.space, **self.method.space}.items()))

    @property
    def trials(self) -> int:
        """How many trials it has."""
        return self.setting.trials or self.study.trials

    @property
    def seeds(self) -> range:
        """The trials' seeds."""
        return range(self.study.seed, self.study.seed + self.trials)

    @property
    def search_epochs(self) -> int | None:
        """How long a search run is: as the search says, but never longer than a trial."""
        longest = {**self.study.training, **self.setting.training, **self.method.training}.get("epochs")
        wanted = self.study.search.epochs
        return wanted if wanted is None or longest is None else min(wanted, longest)

    def config(self, point: Mapping[str, Any], *, seed: int, epochs: int | None, registry: Registry) -> RunConfig:
        """Return the complete configuration of one run at one point of the search space, every value checked."""
        training = {**self.study.training, **self.setting.training, **self.method.training, "seed": seed}
        roles = {"dataset": self.setting.dataset, "generator": self.setting.generator}
        roles |= {"estimator": self.method.estimator, "backbone": self.setting.backbone}
        roles |= {"transform": self.method.transform}
        callbacks = read_callbacks(training.pop("callbacks", ()), f"study {self.study.name}")
        components = {role: (c[0], dict(c[1])) for role, c in roles.items() if c is not None}
        for key, value in point.items():
            role, dot, field = key.partition(".")
            if not dot:
                training[key] = value
            elif role in components:
                components[role][1][field] = value
            else:
                raise ConfigError(f"search space: {key} names no role.{did_you_mean(role, components)}")
        if epochs is not None:
            training["epochs"] = epochs
        where = f"study {self.study.name}"
        complete = {
            role: (name, values_of(registry.create(role, name, values))) for role, (name, values) in components.items()
        }
        listening = tuple((name, values_of(registry.create("callback", name, values))) for name, values in callbacks)
        return RunConfig(training=make_training(training, where), components=complete, callbacks=listening)


def check_name(name: str) -> None:
    """Refuse a name that could leave its folder, or that no file or experiment can have."""
    if not NAME.fullmatch(name) or len(name) > MOST_NAME:
        raise ConfigError(
            f"a study's name is of letters, digits, '.', '_' and '-', at most {MOST_NAME} of them, not {shown(name)}"
        )


def component_label(component: Component) -> str:
    """Return 'name' or 'name(key=value, …)' with the values that the description gives."""
    name, values = component
    shown = ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items())
    return f"{name}({shown})" if shown else name


def _table(component: Component) -> dict[str, Any]:
    return {"name": component[0], **{key: plain(value) for key, value in component[1].items()}}
