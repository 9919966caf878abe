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
from wsl_toolkit.studies.jobs import FINISHED, JobResult
from wsl_toolkit.studies.rule import Selection
from wsl_toolkit.system.statistics import mean_and_error


class SelectionError(ConfigError):
    """A search whose results cannot be selected from."""


@attrs.frozen(kw_only=True)
class Scored:
    """A point of the search space and what its runs came to."""

    point: dict[str, Any]
    results: tuple[JobResult, ...]
    value: float | None
    """The rule's metric, averaged over folds; None if a run diverged or was pruned."""
    stderr: float | None = None
    """The standard error of the value; None where it is not known."""

    def goodness(self, selection: Selection) -> float:
        """Return a number of which more is better; a failed point is worse than any."""
        return -math.inf if self.value is None else selection.measure.sign * self.value


def score(point: dict[str, Any], results: Sequence[JobResult], selection: Selection, held_out: int = 0) -> Scored:
    """Return what the rule makes of a point: the last epoch's metric, averaged over folds.

    `held_out` is the number of examples that a single held-out part has; 0 if it is not known.
    """
    metric = selection.measure.name
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
    if math.isnan(mean):
        return Scored(point=point, results=tuple(results), value=None)
    error = standard_error(values, held_out, share=selection.measure.scale == "share")
    return Scored(point=point, results=tuple(results), value=mean, stderr=error)


def standard_error(values: Sequence[float], held_out: int, *, share: bool) -> float | None:
    """Return the standard error of the mean of folds' values, or of one value that is itself a mean over examples.

    k folds v_1 … v_k with sample standard deviation s (divisor k - 1): s / √k. One held-out part of n examples:
    √(v (1 - v) / (n - 1)), which is s / √n exactly where each example counts 0 or 1, and an upper bound where it counts
    something between, for no numbers in [0, 1] with mean v vary more. None where the value is no such mean.
    """
    if len(values) > 1:
        return mean_and_error(values)[1]
    if not share or held_out < 2:
        return None
    value = min(max(values[0], 0.0), 1.0)
    return math.sqrt(value * (1 - value) / (held_out - 1))


def best(scored: Sequence[Scored], selection: Selection) -> Scored:
    """Return the point of the strongest weight decay among the best ones; ties go to the better, then to the first.

    The best are those of the highest value and, with the tolerance of one standard error, those whose value is less
    than the leader's standard error away. Nothing here depends on timing.
    """
    near = near_best(scored, selection)
    return max(near, key=lambda s: (_weight_decay(s), s.goodness(selection)))


def near_best(scored: Sequence[Scored], selection: Selection) -> list[Scored]:
    """Return the points that the rule and its tolerance cannot tell from the best, in the order of their proposal."""
    if not scored:
        raise SelectionError("there is nothing to select from")
    leader = max(scored, key=lambda s: (s.goodness(selection), _weight_decay(s)))
    if leader.value is None:
        raise SelectionError(
            f"all {len(scored)} points of the search diverged ({leader.results[0].message}): widen the search space "
            "towards smaller learning rates"
        )
    margin = 0.0
    if selection.tolerance != "none":
        if leader.stderr is None:
            raise SelectionError(
                "the number of held-out examples is not known, which one standard error needs: `wsl study run` with "
                "the study's file counts them"
            )
        margin = leader.stderr
    return [s for s in scored if s.goodness(selection) >= leader.goodness(selection) - margin]


def _weight_decay(scored: Scored) -> float:
    """Return how strongly a point is regularised; 0 where that is not searched."""
    return float(scored.point.get("weight_decay", 0.0))


def at_edge(point: Mapping[str, Any], space: Mapping[str, Any]) -> list[str]:
    """Return the names whose value is the smallest or the largest of its list, where a wider grid might do better."""
    found = []
    for name, values in space.items():
        numbers = isinstance(values, list) and len(values) > 1 and all(isinstance(v, int | float) for v in values)
        if numbers and point.get(name) in (min(values), max(values)):
            found.append(name)
    return found


def varying(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of what differs between points, in their order."""
    names = [name for point in points for name in point]
    return [name for name in dict.fromkeys(names) if len({str(point.get(name)) for point in points}) > 1]
