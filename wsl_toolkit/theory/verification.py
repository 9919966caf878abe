"""Every estimator against every generator: what is promised, and what enumeration finds.

Estimators that claim unbiasedness, or an upper bound, are judged by their exact bias; those that do not, or that work
on whole batches, by the minimiser of their expected loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Estimator, Generator
from wsl_toolkit.errors import PluginError, WslError, one_line
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.settings import Kind, Setting
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.theory.bias import Moments, moments_under, true_confidence_moments
from wsl_toolkit.theory.enumeration import law
from wsl_toolkit.theory.instances import made_data
from wsl_toolkit.theory.minimiser import identifies, minimise, works_on_batches

INSTANCES = 12
"""At how many p(y|x) and logits each pair is looked at; a third of them where the sets are many."""

MANY_CLASSES = 7

LEAD = 0.05
"""By how much the likeliest class leads at least, so that "the right class" is no matter of rounding."""

TRUE_CONFIDENCE = "r-true"
"""The row of Theorem 2: confidences p(y|x,s) from the law itself. A yardstick, not a method that can be run."""


class Verdict(StrEnum):
    """What was found of one pair."""

    UNBIASED = "unbiased"
    BIASED = "biased"
    UPPER_BOUND = "upper bound"
    NO_BOUND = "not an upper bound"
    CONSISTENT = "right minimiser"
    INCONSISTENT = "wrong minimiser"
    NOT_APPLICABLE = "n/a"
    FAILED = "failed"


GOOD = frozenset({Verdict.UNBIASED, Verdict.UPPER_BOUND, Verdict.CONSISTENT})


@attrs.frozen(kw_only=True)
class Row:
    """An estimator of the matrix and its promise."""

    name: str
    kind: Kind
    assumption: Setting


@attrs.frozen(kw_only=True)
class Column:
    """A generator of the matrix, where it lies, and whether its sets determine p(y|x)."""

    name: str
    setting: Setting
    identifies: bool | None = None


@attrs.frozen(kw_only=True)
class Cell:
    """What was found of one estimator under one generator; numbers that make no sense there are None."""

    estimator: str
    generator: str
    promised: bool
    verdict: Verdict
    bias: float | None = None
    """The bias that is largest in size among the instances, with its sign."""
    standard_deviation: float | None = None
    """Of the loss of one example given x, √ of the mean variance."""
    right: int | None = None
    """At how many of the instances the minimiser finds the likeliest class."""
    message: str = ""

    @property
    def broken(self) -> bool:
        """Whether something was promised here, or should at least run, and does not."""
        return self.verdict is Verdict.FAILED or (
            self.promised and self.verdict not in GOOD and self.verdict is not Verdict.NOT_APPLICABLE
        )


@attrs.frozen(kw_only=True)
class Matrix:
    """All pairs at K classes."""

    num_classes: int
    instances: int
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, str], Cell]

    @property
    def broken(self) -> list[Cell]:
        """Cells that should not look as they do."""
        return [cell for cell in self.cells.values() if cell.broken]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON has them."""
        return {
            "classes": self.num_classes,
            "instances": self.instances,
            "estimators": {r.name: {"kind": str(r.kind), "assumption": str(r.assumption)} for r in self.rows},
            "generators": {c.name: {"setting": str(c.setting), "identifies": c.identifies} for c in self.columns},
            "cells": [
                {**attrs.asdict(cell), "verdict": str(cell.verdict), "broken": cell.broken}
                for cell in self.cells.values()
            ],
        }


@attrs.frozen(kw_only=True, eq=False)
class Instances:
    """Where the pairs are looked at: p(y|x) and logits, unrelated, so that nothing holds by luck."""

    posterior: Tensor
    logits: Tensor


Request = tuple[str, Mapping[str, Any]]
"""A component's name and the parameters it is to have."""


def made_instances(num_classes: int, seed: int = 0) -> Instances:
    """Draw p(y|x) with a clear leader and logits, float64 [n, K]; the same for the same seed."""
    rng = stream(seed, "labels")
    n = INSTANCES if num_classes < MANY_CLASSES else INSTANCES // 3
    kept: list[Tensor] = []
    while sum(map(len, kept)) < n:
        drawn = torch.softmax(1.2 * torch.randn(64, num_classes, generator=rng, dtype=torch.float64), -1)
        first, second = drawn.topk(2, dim=-1).values.unbind(-1)
        kept.append(drawn[first - second > LEAD])
    logits = 2 * torch.randn(n, num_classes, generator=rng, dtype=torch.float64)
    return Instances(posterior=torch.cat(kept)[:n], logits=logits)


def verify(
    registry: Registry,
    estimators: Sequence[Request],
    generators: Sequence[Request],
    num_classes: int,
    on_cell: Callable[[Cell], None] = lambda cell: None,
) -> Matrix:
    """Look at every pair; a component that raises spoils its own cells only."""
    where = made_instances(num_classes)
    columns: list[Column] = []
    cells: dict[tuple[str, str], Cell] = {}
    for name, values in generators:
        column, table = _column(registry, name, values, where)
        columns.append(column)
        for estimator, parameters in estimators:
            cell = _cell(registry, (estimator, parameters), column, table, where)
            cells[estimator, name] = cell
            on_cell(cell)
    rows = sorted((_row(registry, name) for name, _ in estimators), key=_row_order)
    columns.sort(key=lambda column: (list(Setting).index(column.setting), column.name))
    return Matrix(
        num_classes=num_classes,
        instances=len(where.posterior),
        rows=tuple(rows),
        columns=tuple(columns),
        cells=cells,
    )


def _row(registry: Registry, name: str) -> Row:
    if name == TRUE_CONFIDENCE:
        return Row(name=name, kind=Kind.UNBIASED, assumption=Setting.GENERAL)
    cls: type[Estimator] = registry.get("estimator", name)
    return Row(name=name, kind=cls.kind, assumption=cls.assumption)


def _row_order(row: Row) -> tuple[int, int, str]:
    """Strong promises first, and wide ones before narrow ones."""
    return list(Kind).index(row.kind), -list(Setting).index(row.assumption), row.name


def _column(
    registry: Registry, name: str, values: Mapping[str, Any], where: Instances
) -> tuple[Column, Tensor | Exception]:
    """Return a generator's law at the instances, or what it raised."""
    n, num_classes = where.posterior.shape
    column = Column(name=name, setting=registry.get("generator", name).setting)
    try:
        with attributed(registry, "generator", name):
            generator: Generator = registry.create("generator", name, values)
            generator.check_classes(num_classes)
            data = made_data(num_classes)
            ready = generator.prepare(data.x, data.y, num_classes, stream(0, "training"))
            table = law(ready, data.x[:n], num_classes)
    except Exception as error:
        return column, error
    return attrs.evolve(column, identifies=identifies(table)), table


def _cell(registry: Registry, request: Request, column: Column, table: Tensor | Exception, where: Instances) -> Cell:
    row = _row(registry, request[0])
    promised = row.kind is not Kind.HEURISTIC and row.assumption.includes(column.setting)
    blank = Cell(estimator=row.name, generator=column.name, promised=promised, verdict=Verdict.NOT_APPLICABLE)
    if isinstance(table, Exception):
        return _with_error(blank, table)
    try:
        if row.name == TRUE_CONFIDENCE:
            return _judged_by_bias(
                blank, true_confidence_moments(table, **attrs.asdict(where, recurse=False)), row.kind
            )
        with attributed(registry, "estimator", row.name):
            return _judged(blank, registry.create("estimator", *request), table, where)
    except Exception as error:
        return _with_error(blank, error)


def _judged(blank: Cell, estimator: Estimator, table: Tensor, where: Instances) -> Cell:
    if not estimator.logits_suffice:
        return attrs.evolve(blank, message=f"{estimator.name} needs more of the network than its logits")
    if estimator.kind in (Kind.UNBIASED, Kind.UPPER_BOUND) and not works_on_batches(estimator):
        moments = moments_under(estimator, table, posterior=where.posterior, logits=where.logits)
        return _judged_by_bias(blank, moments, estimator.kind)
    found = minimise(estimator, table, where.posterior)
    verdict = Verdict.CONSISTENT if found.is_consistent else Verdict.INCONSISTENT
    return attrs.evolve(blank, verdict=verdict, right=int(found.right.sum()))


def _judged_by_bias(blank: Cell, moments: Moments, kind: Kind) -> Cell:
    if kind is Kind.UPPER_BOUND:
        verdict = Verdict.UPPER_BOUND if moments.is_upper_bound else Verdict.NO_BOUND
    else:
        verdict = Verdict.UNBIASED if moments.is_unbiased else Verdict.BIASED
    bias = moments.largest_bias
    if verdict is Verdict.NO_BOUND:
        bias = float(moments.bias.min())
    return attrs.evolve(blank, verdict=verdict, bias=bias, standard_deviation=moments.mean_variance**0.5)


def _with_error(blank: Cell, error: Exception) -> Cell:
    """A request that cannot be met is no failure; broken code and broken contracts are."""
    failed = isinstance(error, PluginError) or not isinstance(error, WslError)
    message = str(error) if isinstance(error, WslError) else one_line(error)
    return attrs.evolve(blank, verdict=Verdict.FAILED if failed else Verdict.NOT_APPLICABLE, message=message)
