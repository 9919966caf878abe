"""Where a generator lies on the map: decided from its own probabilities, with a witness where a claim fails."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Generator
from wsl_toolkit.parameters import values_of
from wsl_toolkit.settings import Setting
from wsl_toolkit.theory import claims
from wsl_toolkit.theory.enumeration import all_sets, law
from wsl_toolkit.theory.instances import prepared

RELATIVE, ABSOLUTE = 1e-6, 1e-12
"""Two probabilities that differ by less than this are equal: closed forms in float64 err by far less."""

NORMALISED = "normalised"


@attrs.frozen(kw_only=True)
class Cell:
    """One place of the table: the probability (or, in a test, the observed frequency) of s given x and y."""

    x: int
    s: tuple[int, ...]
    y: int
    p: float

    def __str__(self) -> str:
        return f"p({{{','.join(map(str, self.s))}}} | x{self.x}, y={self.y}) = {self.p:.6g}"


@attrs.frozen(kw_only=True)
class Witness:
    """Why a claim fails: a cell that must be zero, or two cells that must be equal and are not."""

    cell: Cell
    other: Cell | None = None
    must_be: str = ""

    def __str__(self) -> str:
        return f"{self.cell} but {self.other}" if self.other else f"{self.cell}, which must be {self.must_be}"


@attrs.frozen(kw_only=True)
class Verdict:
    """Whether one claim holds, how far it is from holding, and the witness where it does not."""

    claim: str
    holds: bool
    deviation: float
    """The largest difference between two cells that must be equal, or from zero (or one) where that is the claim."""
    witness: Witness | None = None
    p_value: float | None = None
    """Of a statistical test; None where the verdict is exact."""
    note: str = ""


@attrs.frozen(kw_only=True)
class Proof:
    """The place of one configured generator on the map."""

    generator: str
    parameters: dict[str, Any]
    declared: Setting
    num_classes: int
    num_instances: int
    method: Literal["enumeration", "sampling"]
    verdicts: tuple[Verdict, ...]

    def verdict(self, claim: str) -> Verdict:
        """Return the verdict on 'normalised' or on a setting."""
        return next(verdict for verdict in self.verdicts if verdict.claim == claim)

    @property
    def is_law(self) -> bool:
        """Whether the probabilities of every (x, y) are non-negative and sum to one."""
        return self.verdict(NORMALISED).holds

    @property
    def regions(self) -> frozenset[Setting]:
        """All regions of the map in which it lies; none if its probabilities do not sum to one."""
        holding = frozenset(claim for claim in claims.CLAIMS if self.verdict(claim).holds)
        return claims.regions_of(holding) if self.is_law else frozenset()

    @property
    def region(self) -> Setting | None:
        """The smallest region in which it lies; None if its probabilities do not sum to one."""
        return claims.smallest(self.regions) if self.is_law else None

    @property
    def keeps_promise(self) -> bool:
        """Whether it lies within the setting that it declares."""
        return self.declared in self.regions


def prove(generator: Generator, num_classes: int, instances: Tensor | None = None) -> Proof:
    """Decide every claim of the map by enumeration of all sets.

    Without `instances` the generator is prepared on made data and looked at, at a few of its points; with them it must
    be prepared already.
    """
    if instances is None:
        generator, instances = prepared(generator, num_classes)
    table = law(generator, instances, num_classes)
    verdicts = [check_normalised(table)]
    verdicts += [check_claim(table, setting) for setting in claims.CLAIMS]
    return Proof(
        generator=generator.name,
        parameters=values_of(generator),
        declared=generator.setting,
        num_classes=num_classes,
        num_instances=len(instances),
        method="enumeration",
        verdicts=tuple(verdicts),
    )


def check_normalised(table: Tensor) -> Verdict:
    """Decide whether every cell is a probability and the sets of each (x, y) sum to one."""
    improper = ~((table >= -ABSOLUTE) & (table <= 1 + RELATIVE))  # so that NaN counts as improper
    if bool(improper.any()):
        where = int(improper.flatten().nonzero()[0])
        witness = Witness(cell=cell_at(table, where), must_be="within 0 and 1")
        return Verdict(claim=NORMALISED, holds=False, deviation=float("inf"), witness=witness)
    sums = table.sum(1)  # [n, K]
    deviation = (sums - 1).abs()
    worst = int(deviation.argmax())
    x, y = divmod(worst, table.shape[2])
    holds = float(deviation.max()) <= RELATIVE
    everything = Cell(x=x, s=(), y=y, p=float(sums.flatten()[worst]))
    return Verdict(
        claim=NORMALISED,
        holds=holds,
        deviation=float(deviation.max()),
        witness=None if holds else Witness(cell=everything, must_be="1 as a sum over all sets"),
    )


def check_claim(table: Tensor, setting: Setting) -> Verdict:
    """Decide one setting's claim on a table of probabilities [n, 2^K - 2, K]."""
    groups = claims.cell_groups(setting, len(table), table.shape[2]).flatten()
    cells = table.flatten()
    if not bool(torch.isfinite(cells).all()):
        witness = Witness(cell=cell_at(table, int((~torch.isfinite(cells)).nonzero()[0])), must_be="a finite number")
        return Verdict(claim=setting, holds=False, deviation=float("inf"), witness=witness)
    stray = torch.where(groups == claims.FORBIDDEN, cells.abs(), 0.0)
    low, high = group_extremes(cells, groups)
    gap = high - low
    tolerated = RELATIVE * high + ABSOLUTE
    holds = bool((gap <= tolerated).all()) and float(stray.max()) <= ABSOLUTE
    deviation = max(float(stray.max()), float(gap.max()))
    if holds:
        return Verdict(claim=setting, holds=True, deviation=deviation)
    if float(stray.max()) > ABSOLUTE:
        witness = Witness(cell=cell_at(table, int(stray.argmax())), must_be="0")
    else:
        worst = int(torch.where(gap > tolerated, gap, 0.0).argmax())
        members = (groups == worst).nonzero().flatten()
        first, second = members[cells[members].argmax()], members[cells[members].argmin()]
        witness = Witness(cell=cell_at(table, int(first)), other=cell_at(table, int(second)))
    return Verdict(claim=setting, holds=False, deviation=deviation, witness=witness)


def group_extremes(cells: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest cell of every group; forbidden cells belong to none."""
    allowed = groups != claims.FORBIDDEN
    count = int(groups.max()) + 1
    empty = torch.zeros(count, dtype=cells.dtype)
    low = empty.scatter_reduce(0, groups[allowed], cells[allowed], "amin", include_self=False)
    high = empty.scatter_reduce(0, groups[allowed], cells[allowed], "amax", include_self=False)
    return low, high


def cell_at(table: Tensor, position: int) -> Cell:
    """Return the cell at a flat position of a table [n, 2^K - 2, K]."""
    _, m, num_classes = table.shape
    x, rest = divmod(position, m * num_classes)
    row, y = divmod(rest, num_classes)
    members = tuple(all_sets(num_classes)[row].nonzero().flatten().tolist())
    return Cell(x=x, s=members, y=y, p=float(table.flatten()[position]))
