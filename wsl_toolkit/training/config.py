"""A run's configuration: read from TOML and flags, completed with defaults, written back to be rerun."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from wsl_toolkit.errors import ConfigError, did_you_mean
from wsl_toolkit.parameters import construct, param, parameters_of, plain, values_of
from wsl_toolkit.plugins.registry import Registry

DEFAULT_COMPONENTS = {"dataset": "digits", "generator": "mcl-skewed", "estimator": "ppl", "backbone": "linear"}
"""What a bare `wsl run` uses; the only place where the core names components, and any of them may be missing."""


CONFIGURED = (*DEFAULT_COMPONENTS, "transform")
"""The roles that a configuration has a table for; a transform is there only if it is named."""


AFTER_0_1 = (
    "warmup_epochs",
    "patience",
    "monitor",
    "keep",
    "augmentation",
    "subset",
    "compile",
    "deterministic",
    "threads",
)
"""Training settings that release 0.1 did not have."""


FROZEN = ("frozen", "frozen_head", "frozen_weights")
"""Parameters of every backbone, which a configuration states only where the backbone is frozen, so that what was
computed before there were any is still known."""


AUGMENTATIONS = ("none", "weak", "strong", "cutout")
"""What `wsl_toolkit.augmentation` can do to a training batch."""


@attrs.frozen(kw_only=True)
class Training:
    """How to train: everything of a run that is not a component."""

    epochs: int = param(100, help="passes over the training data, at most", ge=1)
    batch_size: int = param(64, help="examples in a mini-batch", ge=1)
    lr: float = param(0.05, help="learning rate", gt=0)
    weight_decay: float = param(1e-4, help="l2 regularisation", ge=0)
    momentum: float = param(0.9, help="momentum, for optimisers that have one", ge=0, lt=1)
    optimizer: str = param("sgd", help="any optimiser of torch.optim, by its name in lower case, or a plugin's")
    scheduler: str = param(
        "none", help="learning-rate schedule: none, cosine, linear, step, exponential, one-cycle, a plugin's"
    )
    warmup_epochs: int = param(0, help="epochs in which the learning rate rises before its schedule begins", ge=0)
    seed: int = param(0, help="the seed that all random streams derive from", ge=0)
    trials: int = param(1, help="how many seeds to run, counting up from --seed", ge=1)
    validation: float = param(0.1, help="share of the training data held out for validation", ge=0, lt=1)
    test: float = param(0.2, help="share held out for testing where the dataset has no test part", gt=0, lt=1)
    subset: float = param(
        1.0,
        help="train on a part of the training data: a share below 1, or a number of examples from 2; drawn at random, "
        "stratified by candidate sets where the data has its own",
        gt=0,
    )
    device: str = param("auto", help="auto, cpu, cuda, cuda:1, mps")
    threads: int = param(
        0, help="threads of a training step on a CPU; 0: what is fastest, measured once", ge=0, le=2**16
    )
    precision: str = param(
        "float32",
        help="numbers of the forward pass; bfloat16 and float16 are faster where the processor has them",
        choices=("float32", "bfloat16", "float16"),
    )
    compile: bool = param(False, help="compile the network first, which pays in long runs of large networks")
    deterministic: bool = param(
        False, help="use no kernel whose sums depend on timing: same bits on a GPU too, for some of its speed"
    )
    augmentation: str = param(
        "none",
        help="what the network sees of a training batch: itself, or copies that are moved (weak), distorted (strong) "
        "or partly blank (cutout); methods with views of their own keep theirs",
        choices=AUGMENTATIONS,
    )
    on_nan: str = param(
        "stop", help="what a loss that is NaN or infinite does: stop the run, or continue", choices=("stop", "continue")
    )
    patience: int = param(0, help="stop after so many epochs without improvement; 0: train all epochs", ge=0)
    monitor: str = param("validation/covering_rate", help="metric by which to stop, and to choose the best epoch")
    keep: str = param("last", help="which epoch's model to keep and to report", choices=("last", "best"))
    optimizer_options: dict[str, Any] = attrs.field(factory=dict)
    """The optimiser's own options: `--optimizer-nesterov`, or keys of an [optimizer] table."""
    scheduler_options: dict[str, Any] = attrs.field(factory=dict)
    """The schedule's own options: `--scheduler-gamma`, or keys of a [scheduler] table."""

    @property
    def watches(self) -> bool:
        """Whether training looks at a held-out part while it goes on."""
        return self.patience > 0 or self.keep == "best"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; an optimiser or a schedule with options is a table with a name."""
        values = values_of(self)
        for key, options in (("optimizer", self.optimizer_options), ("scheduler", self.scheduler_options)):
            if options:
                values[key] = {"name": values[key], **{name: plain(value) for name, value in options.items()}}
        return values

    def flat(self) -> dict[str, Any]:
        """Return '<key>' and '<key>.<option>', as tracked parameters are named."""
        values = values_of(self)
        for key, options in (("optimizer", self.optimizer_options), ("scheduler", self.scheduler_options)):
            values |= {f"{key}.{name}": plain(value) for name, value in options.items()}
        return values


def make_training(values: Mapping[str, Any], where: str) -> Training:
    """Read training settings from plain values; `optimizer` and `scheduler` may be names or tables with options."""
    settings = {key.replace("-", "_"): value for key, value in values.items()}
    options: dict[str, dict[str, Any]] = {}
    for key in ("optimizer", "scheduler"):
        table = settings.get(key)
        if isinstance(table, Mapping):
            options[key] = {name: value for name, value in table.items() if name != "name"}
            settings[key] = table.get("name", parameters_of(Training)[key].default)
    return attrs.evolve(
        construct(Training, settings, where),
        optimizer_options=options.get("optimizer", {}),
        scheduler_options=options.get("scheduler", {}),
    )


@attrs.frozen(kw_only=True)
class RunConfig:
    """Training settings, and a name with parameter values for each role."""

    training: Training = attrs.field(factory=Training)
    components: dict[str, tuple[str, dict[str, Any]]] = attrs.field(factory=dict)
    callbacks: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Names and parameter values of registered callbacks, in the order in which they are called."""

    def with_defaults(self) -> RunConfig:
        """Fill in the roles that were not named."""
        chosen: dict[str, tuple[str, dict[str, Any]]] = {role: (name, {}) for role, name in DEFAULT_COMPONENTS.items()}
        return attrs.evolve(self, components={**chosen, **self.components})

    def resolved(self, registry: Registry) -> RunConfig:
        """Return the same configuration with every parameter of every component written out and checked."""
        complete = {
            role: (name, values_of(registry.create(role, name, values)))
            for role, (name, values) in self.with_defaults().components.items()
        }
        callbacks = tuple(
            (name, values_of(registry.create("callback", name, values))) for name, values in self.callbacks
        )
        return attrs.evolve(self, components=complete, callbacks=callbacks)

    def named(self) -> list[tuple[str, str]]:
        """Return (role, name) of all components that the configuration names."""
        found = [(role, name) for role, (name, _) in self.components.items()]
        return [*found, *(("callback", name) for name, _ in self.callbacks)]

    def create_callbacks(self, registry: Registry) -> list[Any]:
        """Return new callbacks, which have heard of no training yet."""
        return [registry.create("callback", name, values) for name, values in self.callbacks]

    def create(self, role: str, registry: Registry) -> Any:
        """Return the configured component of a role."""
        name, values = self.components[role]
        return registry.create(role, name, values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: training keys first, then one table for each role."""
        tables = {role: _table(component) for role, component in self._stated().items()}
        callbacks = {"callbacks": [_table(each) for each in self.callbacks]} if self.callbacks else {}
        return {**self.training.to_dict(), **tables, **callbacks}

    def _stated(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return the components without what says only that the backbone is not frozen."""
        name, values = self.components.get("backbone", ("", {}))
        if not name or values.get("frozen"):
            return self.components
        kept = {key: value for key, value in values.items() if key not in FROZEN}
        return {**self.components, "backbone": (name, kept)}

    def to_toml(self) -> str:
        """Return the configuration as TOML."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())

    def identity(self) -> str:
        """Return the text by which a checkpoint knows its configuration.

        Settings that came after release 0.1 are left out where they are at their defaults, so that checkpoints which
        were written before there were such settings are still known.
        """
        import tomli_w

        defaults = Training()
        values = self.to_dict()
        for name in AFTER_0_1:
            if getattr(self.training, name) == getattr(defaults, name):
                del values[name]
        return tomli_w.dumps(values)

    def flat(self) -> dict[str, Any]:
        """Return '<role>.<field>' and training keys, as tracked parameters are named."""
        flat = self.training.flat()
        for role, (name, values) in self._stated().items():
            flat |= {f"{role}.name": name, **{f"{role}.{key}": plain(value) for key, value in values.items()}}
        for name, values in self.callbacks:
            flat |= {f"callback.{name}.{key}": plain(value) for key, value in values.items()}
        return flat | ({"callbacks": ", ".join(name for name, _ in self.callbacks)} if self.callbacks else {})


def from_dict(values: Mapping[str, Any], where: str) -> RunConfig:
    """Read a configuration from plain values; an unknown key is an error that suggests the right one."""
    training: dict[str, Any] = {}
    components: dict[str, tuple[str, dict[str, Any]]] = {}
    callbacks: tuple[tuple[str, dict[str, Any]], ...] = ()
    known = [*parameters_of(Training), *CONFIGURED, "callbacks"]
    for key, value in values.items():
        name = key.replace("-", "_")
        if name in CONFIGURED:
            components[name] = _component(name, value, where)
        elif name == "callbacks":
            callbacks = read_callbacks(value, where)
        elif name in known:
            training[name] = value
        else:
            raise ConfigError(f"{where}: unknown key {key!r}.{did_you_mean(name, known)}")
    return RunConfig(training=make_training(training, where), components=components, callbacks=callbacks)


def read_callbacks(value: Any, where: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Read a list of callbacks: names, or tables with a name and values, as `[[callbacks]]` makes them."""
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: callbacks must be a list of names, or [[callbacks]] tables with a name")
    return tuple(_component("callbacks", item, where) for item in value)


def _table(component: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    name, values = component
    return {"name": name, **{key: plain(value) for key, value in values.items() if value is not None}}


def _component(role: str, value: Any, where: str) -> tuple[str, dict[str, Any]]:
    if isinstance(value, str):
        return value, {}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        example = f', such as name = "{DEFAULT_COMPONENTS[role]}"' if role in DEFAULT_COMPONENTS else ""
        raise ConfigError(f"{where}: [{role}] needs a name{example}")
    return value["name"], {key: item for key, item in value.items() if key != "name"}


def merge(
    base: RunConfig,
    training: Mapping[str, Any],
    components: Mapping[str, tuple[str, dict[str, Any]]],
    callbacks: tuple[tuple[str, dict[str, Any]], ...] = (),
) -> RunConfig:
    """Let flags override a file; naming another component drops the parameters of the one it replaces."""
    merged = dict(base.components)
    for role, (name, values) in components.items():
        old_name, old_values = merged.get(role, (None, {}))
        merged[role] = (name, {**(old_values if old_name == name else {}), **values})
    changed = make_training({**base.training.to_dict(), **training}, "wsl run")
    return RunConfig(training=changed, components=merged, callbacks=callbacks or base.callbacks)
