"""The rule that selects a point of a search space, and the metric that it reads; nothing here imports torch."""

from __future__ import annotations

import attrs

from wsl_toolkit.errors import ConfigError, did_you_mean
from wsl_toolkit.parameters import param
from wsl_toolkit.training.metrics import OWN_METRICS, Measure, rules

TOLERANCES = ("none", "one-standard-error")


@attrs.frozen(kw_only=True)
class Selection:
    """How a point of the search space is chosen; test labels have no part in it."""

    rule: str = param(
        "covering-rate",
        help="what the best point has most of (or least, for a risk)",
    )
    folds: int = param(
        1, help="1: the held-out part; k > 1: k-fold cross-validation on everything but the test part", le=1000
    )
    per_trial: bool = param(False, help="search anew for each trial, on its own split; otherwise once, on the first")
    tolerance: str = param(
        "none",
        help="what counts as equally good: equal values alone, or all within a standard error of the best; among them "
        "the strongest weight decay is chosen",
        choices=TOLERANCES,
    )

    recorded: Measure | None = attrs.field(default=None, eq=False, repr=False)
    """What an earlier start knew of the rule's metric, for reports after its plugin is gone."""

    def __attrs_post_init__(self) -> None:
        if self.measure.scale != "share" and self.needs_held_out_count:
            raise ConfigError(
                "selection: a risk on one held-out part has no standard error that its mean tells: set folds to 2 or "
                "more for tolerance = 'one-standard-error', or choose another rule"
            )
        if self.folds < 1:
            raise ConfigError(
                f"selection: folds must be 1 (held-out part) or more (cross-validation), not {self.folds}"
            )

    @property
    def measure(self) -> Measure:
        """The metric that the rule reads."""
        known = rules()
        if self.rule in known:
            return known[self.rule]
        if self.recorded is not None:
            return self.recorded
        raise ConfigError(
            f"selection: rule must be one of {', '.join(known)}, or a metric of a plugin that is installed, not "
            f"{self.rule!r}.{did_you_mean(self.rule, known)}"
        )

    @property
    def plugins_metric(self) -> str:
        """The name of the metric where it is a plugin's, whose code then is part of the results; else nothing."""
        return "" if self.measure.name in OWN_METRICS else self.rule

    @property
    def needs_held_out_count(self) -> bool:
        """Whether a standard error is wanted of a mean over held-out examples, whose number then matters."""
        return self.tolerance != "none" and self.folds == 1

    @property
    def is_oracle(self) -> bool:
        """Whether it reads clean labels, which is said wherever its results appear."""
        return self.rule == "oracle-accuracy"

    def __str__(self) -> str:
        how = f"{self.folds}-fold cross-validated " if self.folds > 1 else "held-out "
        near = ", the strongest weight decay within one standard error of the best" if self.tolerance != "none" else ""
        oracle = " (ORACLE: reads clean labels)" if self.is_oracle else ""
        return f"{how}{self.rule.replace('-', ' ')}{near}{oracle}"
