"""The one table of metrics: what each is called, what it reads, which way is better, where it is shown.

Evaluation, result tables, curves, MLflow's columns, early stopping and the selection rules of studies all read
`METRICS`: a metric is added here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import attrs

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.errors import ConfigError, did_you_mean

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

    @property
    def known(self) -> Tensor:
        """The logits of the examples whose candidate sets say something, [m, K]."""
        assert self.rows is not None
        return self.logits[self.rows]


@attrs.frozen(kw_only=True, eq=False)
class Metric:
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
    column: bool = False
    """Whether it has a column in MLflow's table of runs."""
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


# ---------------------------------------------------------------------------------------------- the formulas


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the share of examples whose most likely class is the true one; unknown labels (-1) do not count."""
    known = labels >= 0
    return ((logits.argmax(1) == labels) & known).sum() / known.sum()


def covering_rate(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return CR, the share of examples whose most likely class is a candidate."""
    return candidates.gather(1, logits.argmax(1, keepdim=True)).float().mean()


def candidate_confidence(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return r_j = p_j 1{j in s} / Σ_{k in s} p_k (Theorem 1), stable for any logits."""
    return logits.masked_fill(~candidates, -math.inf).softmax(dim=-1)


def approximated_accuracy(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return AA, the mean confidence that the predicted class is the true one given the set."""
    r = candidate_confidence(logits, candidates)
    return r.gather(1, logits.argmax(1, keepdim=True)).mean()


def true_label_confidence(logits: Tensor, candidates: Tensor, labels: Tensor) -> Tensor:
    """Return the mean confidence r_y that a model gives the true label within its set; unknown labels do not count."""
    known = labels >= 0
    r = candidate_confidence(logits, candidates).gather(1, labels.clamp(min=0)[:, None])[:, 0]
    return (r * known).sum() / known.sum()


def held_out_risk(estimator: Estimator, logits: Tensor, candidates: Tensor, shared: State) -> Tensor:
    """Return the estimator's own risk on examples it holds no state for: state comes from the same logits."""
    state = {**shared, **estimator.init_state(candidates)}
    state.update(estimator.update(logits, candidates, state))
    return estimator.objective(logits, candidates, state)


# ------------------------------------------------------------------------------------------------- the table


def _on_sets(formula: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Measured], Tensor | None]:
    return lambda part: None if part.sets is None else formula(part.known, part.sets)


def _risk(part: Measured) -> Tensor | None:
    if part.sets is None or not part.estimator.logits_suffice:
        return None
    return held_out_risk(part.estimator, part.known, part.sets, part.shared)


def _accuracy(part: Measured) -> Tensor | None:
    return None if part.labels is None else accuracy(part.logits, part.labels)


def _oracle_accuracy(part: Measured) -> Tensor | None:
    return None if part.sets is None else _accuracy(part)


def _oracle_confidence(part: Measured) -> Tensor | None:
    if part.sets is None or part.labels is None or part.rows is None:
        return None
    return true_label_confidence(part.known, part.sets, part.labels[part.rows])


TRAIN_RISK = "train/risk"
TEST_ACCURACY = "test/accuracy"
MEAN_SIZE = "candidates/mean_size"

METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            name=TEST_ACCURACY,
            label="test accuracy",
            reads="clean labels",
            better="higher",
            compute=_accuracy,
            shown=True,
            column=True,
            curve=True,
        ),
        Metric(
            name=TRAIN_RISK,
            label="empirical risk",
            reads="losses",
            better="lower",
            shown=True,
            column=True,
            scale="risk",
            curve=True,
        ),
        Metric(
            name="validation/covering_rate",
            label="covering rate (held out)",
            reads="candidates",
            better="higher",
            compute=_on_sets(covering_rate),
            rule="covering-rate",
            meaning="share of held-out examples whose prediction is a candidate",
            shown=True,
            column=True,
            curve=True,
        ),
        Metric(
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
        Metric(
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
        Metric(
            name="validation/oracle_accuracy",
            label="oracle accuracy (held out, reads clean labels)",
            reads="clean labels",
            better="higher",
            compute=_oracle_accuracy,
            rule="oracle-accuracy",
            meaning="ORACLE: accuracy on held-out clean labels, which no real user has",
            shown=True,
        ),
        Metric(
            name="validation/oracle_confidence",
            label="confidence of the true label (held out, reads clean labels)",
            reads="clean labels",
            better="higher",
            compute=_oracle_confidence,
        ),
        Metric(name=MEAN_SIZE, label="mean |s|", reads="candidates", better="lower", scale="classes", shown=True),
    )
}
"""Every metric by its name, in the order in which people want them."""

RULES = {metric.rule: metric for metric in METRICS.values() if metric.rule is not None}
"""The metrics that a study may select by, under the names of their rules."""


def measured_on(part: str) -> list[Metric]:
    """Return the metrics that are computed from a part's logits."""
    return [metric for metric in METRICS.values() if metric.compute is not None and metric.part == part]


def monitored(name: str) -> Metric:
    """Return the metric to stop or to choose an epoch by; one that reads clean labels is refused."""
    metric = METRICS.get(name)
    known = [each.name for each in METRICS.values() if each.may_select and each.name != MEAN_SIZE]
    if metric is None:
        raise ConfigError(f"there is no metric {name!r} to monitor.{did_you_mean(name, METRICS)} Known: {known}")
    if not metric.may_select or metric.name == MEAN_SIZE:
        raise ConfigError(f"{name} cannot be monitored: it would let clean labels choose the model. Known: {known}")
    return metric
