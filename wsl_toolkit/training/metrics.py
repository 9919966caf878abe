"""The one table of metrics: what each is called, what it reads, which way is better, where it is shown.

Evaluation, result tables, curves, MLflow's columns, early stopping and the selection rules of studies all read
`METRICS`: a metric is added here, or by a plugin, and nowhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs

from wsl_toolkit.components import Estimator, Metric, State
from wsl_toolkit.errors import ConfigError, PluginError, did_you_mean
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.training.formulas import (
    absolute_errors,
    accuracy,
    approximated_accuracy,
    covering_rate,
    held_out_risk,
    mean_recall,
    shots,
    true_label_confidence,
)

if TYPE_CHECKING:
    from torch import Tensor  # commands that only read the table do not import torch


@attrs.frozen(kw_only=True, eq=False)
class Measured:
    """What a metric of one part may look at; `labels` is there only for metrics that say that they read them."""

    logits: Tensor
    """Of all examples of the part, [n, K]."""
    estimator: Estimator
    shared: State
    """The estimator's shared state."""
    rows: Tensor | None = None
    """Which examples have a candidate set that says something, that is, not all classes."""
    sets: Tensor | None = None
    """Their candidate sets, [m, K]."""
    labels: Tensor | None = None
    """True labels of all examples of the part, -1 where one is not known."""
    class_counts: Tensor | None = None
    """How many training examples each class has, where a long tail was made; for metrics that read clean labels."""
    class_values: Tensor | None = None
    """The number that each class stands for, where classes are ordered numbers; for metrics that read clean labels."""

    @property
    def known(self) -> Tensor:
        """The logits of the examples whose candidate sets say something, [m, K]."""
        assert self.rows is not None
        return self.logits[self.rows]


@attrs.frozen(kw_only=True, eq=False)
class Measure:
    """One row of the table."""

    name: str
    """`<part>/<what>`: the part is train, validation or test."""
    label: str
    """What people read."""
    reads: Literal["losses", "candidates", "clean labels"]
    better: Literal["higher", "lower"]
    compute: Callable[[Measured], Tensor | None] | None = None
    """From a part's logits to the value, or None where it cannot be had; no function: the loop knows it already."""
    rule: str | None = None
    """The name under which a study selects by it; None: nothing selects by it."""
    shown: bool = False
    """Whether it stands in the table of a result."""
    column: str = ""
    """What its column in MLflow's table of runs is called, in a word; "": it has none."""
    scale: Literal["share", "risk", "classes"] = "share"
    """Whether it is a mean over examples of numbers between 0 and 1, a risk, or a number of classes."""
    curve: bool = False
    """Whether the learning curves show it, in the panel of its scale."""
    meaning: str = ""
    """What a study's description says of the rule."""

    @property
    def part(self) -> str:
        """The part of the data that it is computed on."""
        return self.name.partition("/")[0]

    @property
    def sign(self) -> int:
        """1 if more is better, -1 if less is."""
        return 1 if self.better == "higher" else -1

    @property
    def may_select(self) -> bool:
        """Whether a model may be chosen by it: it reads no clean label, or its name says that it is an oracle."""
        return self.reads != "clean labels" or (self.rule is not None and self.rule.startswith("oracle"))


# ------------------------------------------------------------------------------------------------- the table


def _on_sets(formula: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Measured], Tensor | None]:
    return lambda part: None if part.sets is None else formula(part.known, part.sets)


def _risk(part: Measured) -> Tensor | None:
    if part.sets is None or not part.estimator.logits_suffice:
        return None
    return held_out_risk(part.estimator, part.known, part.sets, part.shared)


def _accuracy(part: Measured) -> Tensor | None:
    return None if part.labels is None else accuracy(part.logits, part.labels)


def _balanced(part: Measured) -> Tensor | None:
    if part.labels is None or part.class_counts is None:
        return None
    return mean_recall(part.logits, part.labels)


def _shot(name: str) -> Callable[[Measured], Tensor | None]:
    def compute(part: Measured) -> Tensor | None:
        if part.labels is None or part.class_counts is None:
            return None
        chosen = shots(part.class_counts)[name]
        return mean_recall(part.logits, part.labels, chosen) if bool(chosen.any()) else None

    return compute


def _on_ordered(formula: Callable[[Tensor], Tensor]) -> Callable[[Measured], Tensor | None]:
    def compute(part: Measured) -> Tensor | None:
        if part.labels is None or part.class_values is None:
            return None
        return formula(absolute_errors(part.logits, part.labels, part.class_values))

    return compute


def _within(distance: int) -> Callable[[Measured], Tensor | None]:
    return _on_ordered(lambda errors: (errors <= distance).float().mean())


def _oracle_accuracy(part: Measured) -> Tensor | None:
    return None if part.sets is None else _accuracy(part)


def _oracle_confidence(part: Measured) -> Tensor | None:
    if part.sets is None or part.labels is None or part.rows is None:
        return None
    return true_label_confidence(part.known, part.sets, part.labels[part.rows])


TRAIN_RISK = "train/risk"
TEST_ACCURACY = "test/accuracy"
MEAN_SIZE = "candidates/mean_size"
SIZE_BEFORE = "candidates/mean_size_before"
TRUE_LABEL_KEPT = "candidates/true_label_kept"
NEVER_MONITORED = (MEAN_SIZE, SIZE_BEFORE)
"""What is the same after every epoch."""

OWN_METRICS = {
    metric.name: metric
    for metric in (
        Measure(
            name=TEST_ACCURACY,
            label="test accuracy",
            reads="clean labels",
            better="higher",
            compute=_accuracy,
            shown=True,
            column="accuracy",
            curve=True,
        ),
        Measure(
            name="test/balanced_accuracy",
            label="balanced accuracy (long tails)",
            reads="clean labels",
            better="higher",
            compute=_balanced,
            shown=True,
        ),
        *(
            Measure(
                name=f"test/{name}_shot_accuracy",
                label=f"{name}-shot accuracy",
                reads="clean labels",
                better="higher",
                compute=_shot(name),
                shown=True,
            )
            for name in ("many", "medium", "few")
        ),
        Measure(
            name="test/mean_absolute_error",
            label="mean absolute error (ordered classes)",
            reads="clean labels",
            better="lower",
            compute=_on_ordered(lambda errors: errors.float().mean()),
            shown=True,
            scale="classes",
        ),
        *(
            Measure(
                name=f"test/within_{distance}",
                label=f"accuracy within {distance}",
                reads="clean labels",
                better="higher",
                compute=_within(distance),
                shown=True,
            )
            for distance in (3, 5)
        ),
        Measure(
            name=TRAIN_RISK,
            label="empirical risk",
            reads="losses",
            better="lower",
            shown=True,
            column="risk",
            scale="risk",
            curve=True,
        ),
        Measure(
            name="validation/covering_rate",
            label="covering rate (held out)",
            reads="candidates",
            better="higher",
            compute=_on_sets(covering_rate),
            rule="covering-rate",
            meaning="share of held-out examples whose prediction is a candidate",
            shown=True,
            column="covering",
            curve=True,
        ),
        Measure(
            name="validation/approximated_accuracy",
            label="approximated accuracy (held out)",
            reads="candidates",
            better="higher",
            compute=_on_sets(approximated_accuracy),
            rule="approximated-accuracy",
            meaning="mean confidence, given the held-out set, that the prediction is right",
            shown=True,
            curve=True,
        ),
        Measure(
            name="validation/risk",
            label="held-out risk",
            reads="candidates",
            better="lower",
            compute=_risk,
            rule="held-out-risk",
            meaning="the estimator's own risk on held-out candidate sets, the smaller the better",
            scale="risk",
            curve=True,
        ),
        Measure(
            name="validation/oracle_accuracy",
            label="oracle accuracy (held out, reads clean labels)",
            reads="clean labels",
            better="higher",
            compute=_oracle_accuracy,
            rule="oracle-accuracy",
            meaning="ORACLE: accuracy on held-out clean labels, which no real user has",
            shown=True,
        ),
        Measure(
            name="validation/oracle_confidence",
            label="confidence of the true label (held out, reads clean labels)",
            reads="clean labels",
            better="higher",
            compute=_oracle_confidence,
        ),
        Measure(
            name=TRUE_LABEL_KEPT,
            label="true labels that the transform kept (reads clean labels)",
            reads="clean labels",
            better="higher",
            shown=True,
        ),
        Measure(
            name=SIZE_BEFORE,
            label="mean |s| before the transform",
            reads="candidates",
            better="lower",
            scale="classes",
            shown=True,
        ),
        Measure(name=MEAN_SIZE, label="mean |s|", reads="candidates", better="lower", scale="classes", shown=True),
    )
}
"""The toolkit's own metrics by their names, in the order in which people want them."""


class _Table(Mapping[str, Measure]):
    """The toolkit's metrics and the plugins', which are loaded when the table is first read."""

    _of: Registry | None = None
    _found: dict[str, Measure]

    @property
    def _rows(self) -> dict[str, Measure]:
        registry = load_plugins().registry
        if self._of is not registry:
            self._found, self._of = {**OWN_METRICS, **plugin_metrics(registry)}, registry
        return self._found

    def __getitem__(self, name: str) -> Measure:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


METRICS: Mapping[str, Measure] = _Table()
"""Every metric by its name."""


def plugin_metrics(registry: Registry) -> dict[str, Measure]:
    """Return the rows of the metrics that plugins registered; one that reads candidates alone may select."""
    rows = {}
    for name in registry.names("metric"):
        entry = registry.entry("metric", name)
        metric: Metric = registry.create("metric", name, {})
        row = Measure(
            name=metric.key(),
            label=metric.label + (" (reads clean labels)" if metric.reads == "clean labels" else ""),
            reads=metric.reads,
            better=metric.better,
            compute=functools.partial(_computed, metric, registry),
            rule=name if metric.reads == "candidates" else None,
            meaning=f"{metric.summary()} (of plugin {entry.owner})",
            shown=True,
            column=name,
            curve=True,
            scale=metric.scale,
        )
        if row.name in OWN_METRICS or row.rule in {own.rule for own in OWN_METRICS.values()} - {None}:
            raise PluginError(
                f"metric {name!r} of plugin {entry.owner} has the name of one of the toolkit's own: it must be renamed "
                f"(WSL_DISABLE_PLUGINS={entry.owner.distribution} leaves it out)"
            )
        rows[row.name] = row
    return rows


def _computed(metric: Metric, registry: Registry, part: Measured) -> Tensor | None:
    """Return what a plugin's metric computes, as a tensor; say whose it is if it fails or gives no number."""
    import torch

    with attributed(registry, "metric", metric.name):
        value: Any = metric.compute(part)
        if value is None:
            return None
        try:
            return torch.tensor(float(value))
        except (TypeError, ValueError, RuntimeError):
            raise PluginError(f"metric {metric.name} must return a number, not {type(value).__name__}") from None


def rules() -> dict[str, Measure]:
    """Return the metrics that a study may select by, under the names of their rules."""
    return {metric.rule: metric for metric in METRICS.values() if metric.rule is not None}


def measured_on(part: str) -> list[Measure]:
    """Return the metrics that are computed from a part's logits."""
    return [metric for metric in METRICS.values() if metric.compute is not None and metric.part == part]


def monitored(name: str) -> Measure:
    """Return the metric to stop or to choose an epoch by; one that reads clean labels is refused."""
    metric = METRICS.get(name)
    known = [each.name for each in METRICS.values() if each.may_select and each.name not in NEVER_MONITORED]
    if metric is None:
        raise ConfigError(f"there is no metric {name!r} to monitor.{did_you_mean(name, METRICS)} Known: {known}")
    if not metric.may_select or metric.name in NEVER_MONITORED:
        raise ConfigError(f"{name} cannot be monitored: it would let clean labels choose the model. Known: {known}")
    return metric
