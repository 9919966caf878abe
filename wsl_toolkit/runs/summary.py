"""How a run is told to people: its name, its notes, its description, its figure, its model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from wsl_toolkit.components import Callback, Estimator, Generator
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.data.subset import describe_subset
from wsl_toolkit.parameters import parameters_of, plain
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs.result import RunResult
from wsl_toolkit.training.assumptions import mismatch
from wsl_toolkit.training.config import RunConfig
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.metrics import METRICS
from wsl_toolkit.training.train import Trained, TrialOutcome


def shown(names: Iterable[str]) -> dict[str, str]:
    """Return which of some metrics a person wants to see, in order, with what they are called."""
    given = list(names)
    known = {metric.name: metric.label for metric in METRICS.values() if metric.shown}
    logged = {name: name for name in given if name not in METRICS}  # by callbacks and estimators
    return {name: label for name, label in {**known, **logged}.items() if name in given}


def component_label(config: RunConfig, role: str, registry: Registry) -> str:
    """Return 'name' or 'name(key=value, …)': a generator's numbers, and whatever is not at its default."""
    name, values = config.components[role]
    known = parameters_of(registry.get(role, name))
    shown = {
        key: f"{value:g}" if isinstance(value, float) else value
        for key, value in values.items()
        if value != plain(known[key].default) or (role == "generator" and isinstance(value, int | float))
    }
    text = ", ".join(f"{key}={value}" for key, value in shown.items())
    return f"{name}({text})" if text and len(text) <= 60 else name


def run_name(config: RunConfig, registry: Registry) -> str:
    """Return a human name: method on setting, data, network."""
    parts = [
        component_label(config, role, registry)
        for role in ("estimator", "transform", "generator", "dataset", "backbone")
        if role in config.components
    ]
    if config.training.subset != 1:
        parts.append(describe_subset(config.training.subset))
    return " | ".join(parts)


def notes(estimator: Estimator, generator: Generator | None, callbacks: Sequence[Callback] = ()) -> tuple[str, ...]:
    """Return what the user should know before believing the result."""
    found = []
    if not estimator.trains:
        found.append(
            f"{estimator.name} is of theoretical interest: its gradient vanishes where it should guide training"
        )
    if estimator.reads_true_labels():
        found.append(f"{estimator.name} reads the true labels: an upper bound, not a partial-label method")
    found += [
        f"callback {callback.name} reads the true labels: an evaluation, of which training knows nothing"
        for callback in callbacks
        if callback.reads_clean_labels
    ]
    outside = mismatch(type(estimator), type(generator)) if generator is not None else None
    return (*found, outside) if outside else tuple(found)


def verdict(said: Sequence[str]) -> dict[str, str]:
    """Return the notes as a tag, so that such runs can be found."""
    return {"wsl.notes": "; ".join(said)} if said else {}


def describe_start(name: str, estimator: Estimator, said: Sequence[str]) -> str:
    """Return the description of a run that is under way."""
    lines = [f"**{name}**", "", type(estimator).summary(), *(f"- Note: {note}" for note in said)]
    return "\n".join(lines)


def describe_result(result: RunResult) -> str:
    """Return a finished run's description: what it was and how well it did."""
    trials = len(result.trials)
    lines = [f"**{result.name}**", "", f"{trials} trial{'s' if trials > 1 else ''}", "", "| | |", "|---|---|"]
    lines += [f"| {label} | {shown_value(result, key)} |" for key, label in shown(result.mean).items()]
    return "\n".join([*lines, "", *(f"- Note: {note}" for note in result.notes)])


def shown_value(result: RunResult, key: str) -> str:
    """Return 'mean ± standard error', or the value of a single trial."""
    value = f"{result.mean[key]:.4f}"
    return f"{value} ± {result.stderr[key]:.4f}" if key in result.stderr else value


def trial_facts(result: TrialOutcome) -> dict[str, Any]:
    """Return a trial for JSON."""
    return {
        "seed": result.seed,
        "epochs": len(result.records),
        "best_epoch": result.best_epoch,
        "metrics": result.final,
        "candidates": {"hash": result.candidates_hash, "mean_size": result.mean_size},
        "seconds": round(result.seconds, 3),
        **({"plan": result.plan} if isinstance(result, Trained) else {}),
    }


def curve_figure(trials: Sequence[Sequence[EpochRecord]], title: str) -> Any:
    """Return the learning curves: accuracies on top, risk below, with the standard-error band over trials."""
    from wsl_toolkit.runs.curves import learning_curves

    return learning_curves([[record.metrics for record in records] for records in trials], title)


def deployable(model: nn.Module, problem: Problem, data: Data) -> tuple[nn.Module, Tensor]:
    """Return the network that takes inputs as the dataset gives them, on the CPU, and an example of such inputs."""
    return nn.Sequential(problem.whole_transform, model).cpu().eval(), data.raw.x[:2]
