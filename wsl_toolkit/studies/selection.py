"""Selection without cheating: what a search point is worth, from results that hold no test label.

By construction: a selection job's problem is built without test inputs or labels, and without clean validation labels
unless the rule is the oracle; so its result file has nothing that could leak, and this module reads nothing else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.studies.description import Selection
from wsl_toolkit.studies.jobs import FINISHED, JobResult
from wsl_toolkit.training.metrics import RULES

METRICS = {rule: (metric.name, metric.sign) for rule, metric in RULES.items()}
"""A rule's metric, and whether more (1) or less (-1) of it is better."""


class SelectionError(ConfigError):
    """A search whose results cannot be selected from."""


@attrs.frozen(kw_only=True)
class Scored:
    """A point of the search space and what its runs came to."""

    point: dict[str, Any]
    results: tuple[JobResult, ...]
    value: float | None
    """The rule's metric, averaged over folds; None if a run diverged or was pruned."""

    def goodness(self, rule: str) -> float:
        """Return a number of which more is better; a failed point is worse than any."""
        return -math.inf if self.value is None else METRICS[rule][1] * self.value


def score(point: dict[str, Any], results: Sequence[JobResult], selection: Selection) -> Scored:
    """Return what the rule makes of a point: the last epoch's metric, averaged over folds."""
    metric, _ = METRICS[selection.rule]
    values = []
    for result in results:
        if result.job.purpose != "selection":
            raise SelectionError("a point can be selected by selection runs only, never by a reported trial")
        if result.status == FINISHED and metric not in result.final:
            raise SelectionError(
                f"rule {selection.rule!r} needs {metric}, which these runs do not have: hold out a validation part, "
                "or choose a rule that the estimator supports (held-out-risk needs a loss of logits alone)"
            )
        values.append(result.final[metric] if result.status == FINISHED else math.nan)
    mean = statistics.fmean(values)
    return Scored(point=point, results=tuple(results), value=None if math.isnan(mean) else mean)


def best(scored: Sequence[Scored], selection: Selection) -> Scored:
    """Return the best point; ties go to the one proposed first, so that the choice never depends on timing."""
    if not scored:
        raise SelectionError("there is nothing to select from")
    winner = max(scored, key=lambda s: s.goodness(selection.rule))
    if winner.value is None:
        raise SelectionError(
            f"all {len(scored)} points of the search diverged ({winner.results[0].message}): widen the search space "
            "towards smaller learning rates"
        )
    return winner


def varying(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of what differs between points, in their order."""
    names = [name for point in points for name in point]
    return [name for name in dict.fromkeys(names) if len({str(point.get(name)) for point in points}) > 1]
