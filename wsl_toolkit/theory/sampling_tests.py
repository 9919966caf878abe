"""What samples say: a generator's draws against its own probabilities, and against the claims of the map.

The number of draws of each (x, y) is Poisson, so the counts of all cells are independent Poisson variables. Given its
total, a group of cells that a claim says are equally likely is then exactly multinomial with equal chances, groups
are independent, and their chi-square statistics add up. Groups and cells with fewer than 5 expected draws are too
rare to judge by chi-square: groups are left out (which depends on totals alone, so the test stays valid), cells are
pooled.
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Generator
from wsl_toolkit.errors import PluginError, TheoryError
from wsl_toolkit.parameters import values_of
from wsl_toolkit.settings import Setting
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.theory import claims
from wsl_toolkit.theory.enumeration import MAX_CLASSES, all_sets, law, set_index
from wsl_toolkit.theory.instances import prepared
from wsl_toolkit.theory.proofs import NORMALISED, Proof, Verdict, Witness, cell_at, prove

LEVEL = 1e-3
"""A claim is given up when its p-value falls below this."""

FEWEST_EXPECTED = 5
DRAWS = 20_000
"""For each instance and class: at 12 classes a set of average probability is still expected 10 times."""

CHUNK_DRAWS = 2**18
SAMPLES = "samples match probabilities"


@attrs.frozen(eq=False)
class Counts:
    """How often each set was drawn for each instance and class."""

    cells: Tensor
    """float64 [n, 2^K - 2, K]"""
    draws: Tensor
    """How many sets were drawn in all for each instance and class, float64 [n, K]."""

    def frequencies(self) -> Tensor:
        """Return the share of each set among the draws of its (x, y)."""
        return self.cells / self.draws.clamp(min=1).unsqueeze(1)


def observe(generator: Generator, instances: Tensor, num_classes: int, rng: torch.Generator, draws: int) -> Counts:
    """Draw about `draws` sets for every instance and class from a generator that is ready to draw, and count them."""
    n, m = len(instances), len(all_sets(num_classes))
    times = torch.poisson(torch.full((n * num_classes,), float(draws)), generator=rng).long()
    which = torch.repeat_interleave(torch.arange(n * num_classes), times)
    cells = torch.zeros(n * m * num_classes, dtype=torch.float64)
    for part in which.split(CHUNK_DRAWS):
        x, y = part // num_classes, part % num_classes
        mask = generator.draw(instances[x], y, num_classes, rng)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (len(part), num_classes):
            raise PluginError(f"generator {generator.name} must draw a boolean mask of shape (n, K)")
        row = set_index(mask.cpu())
        if bool(((row < 0) | (row >= m)).any()):
            raise PluginError(f"generator {generator.name} drew an empty or a full set, which no generator may")
        cells += torch.bincount((x * m + row) * num_classes + y, minlength=len(cells))
    return Counts(cells.view(n, m, num_classes), times.double().view(n, num_classes))


def compare(counts: Counts, table: Tensor) -> Verdict:
    """Test the draws against probabilities [n, 2^K - 2, K] by chi-square over all sets, small cells pooled."""
    impossible = _impossible(counts, table)
    deviation = float((counts.frequencies() - table).abs().max())
    if bool(impossible.any()):
        where = int(impossible.flatten().nonzero()[0])
        witness = Witness(cell=cell_at(counts.frequencies(), where), must_be="0")
        return Verdict(claim=SAMPLES, holds=False, deviation=deviation, p_value=0.0, witness=witness)
    fit = _fit(counts, table)
    p_value = chi_square_tail(float(fit.statistics.sum()), float(fit.freedom.sum()))
    holds = p_value >= LEVEL
    worst = int(fit.terms.argmax())
    expectation = f"about {float(table.flatten()[worst]):.6g}"
    farthest = Witness(cell=cell_at(counts.frequencies(), worst), must_be=expectation)
    return Verdict(
        claim=SAMPLES, holds=holds, deviation=deviation, p_value=p_value, witness=None if holds else farthest
    )


def class_p_values(counts: Counts, table: Tensor) -> Tensor:
    """Test each instance and class alone [n, K], which sees a fault of one class more sharply than `compare`."""
    fit = _fit(counts, table)
    tails = torch.special.gammaincc(fit.freedom.clamp(min=1) / 2, fit.statistics / 2)
    possible = ~_impossible(counts, table).any(1)
    return torch.where(fit.freedom > 0, tails, 1.0) * possible


def _impossible(counts: Counts, table: Tensor) -> Tensor:
    """Return which sets were drawn although the law gives them no chance."""
    return (table <= 0) & (counts.cells > 0)


@attrs.frozen(eq=False)
class _Fit:
    """How far counts are from what a law expects."""

    terms: Tensor
    """What each set frequent enough to be judged alone adds to chi-square [n, 2^K - 2, K]."""
    statistics: Tensor
    """Chi-square of each instance and class, the pooled rest included [n, K]."""
    freedom: Tensor
    """Its degrees of freedom, float64 [n, K]."""


def _fit(counts: Counts, table: Tensor) -> _Fit:
    expected = table * counts.draws.unsqueeze(1)
    large = expected >= FEWEST_EXPECTED
    rest_expected = expected.masked_fill(large, 0).sum(1)
    rest_counted = counts.cells.masked_fill(large, 0).sum(1)
    rest_large = rest_expected >= FEWEST_EXPECTED
    terms = ((counts.cells - expected).square() / expected).masked_fill(~large, 0)
    rest = ((rest_counted - rest_expected).square() / rest_expected.clamp(min=1e-300)).masked_fill(~rest_large, 0)
    # Draws of one (x, y) sum to their number, which costs a degree of freedom; a rest that is still rare is left out.
    freedom = (large.sum(1) + rest_large.long() - 1).clamp(min=0).double()
    return _Fit(terms=terms, statistics=terms.sum(1) + rest, freedom=freedom)


def judge_claim(counts: Counts, setting: Setting) -> Verdict:
    """Test one setting's claim on counts: forbidden cells are never drawn, cells of a group equally often."""
    n, _, num_classes = counts.cells.shape
    groups = claims.cell_groups(setting, n, num_classes).flatten()
    cells = counts.cells.flatten()
    frequencies = counts.frequencies()
    stray = torch.where(groups == claims.FORBIDDEN, cells, 0.0)
    if float(stray.max()) > 0:
        worst = int(stray.argmax())
        witness = Witness(cell=cell_at(frequencies, worst), must_be="0")
        deviation = float(frequencies.flatten()[worst])
        return Verdict(claim=setting, holds=False, deviation=deviation, p_value=0.0, witness=witness)
    if setting is Setting.GENERAL:
        return Verdict(
            claim=setting, holds=True, deviation=0.0, note=f"in none of {int(cells.sum())} draws was y missing"
        )
    allowed = groups != claims.FORBIDDEN
    members, chosen = groups[allowed], cells[allowed]
    empty = torch.zeros(int(groups.max()) + 1, dtype=torch.float64)
    total = empty.scatter_add(0, members, chosen)
    width = empty.scatter_add(0, members, torch.ones_like(chosen))
    squares = empty.scatter_add(0, members, chosen.square())
    judged = (total >= FEWEST_EXPECTED * width) & (width > 1)
    statistic = torch.where(judged, squares * width / total.clamp(min=1) - total, 0.0)
    freedom = float((width - 1)[judged].sum())
    p_value = chi_square_tail(float(statistic.sum()), freedom)
    note = f"{int(judged.sum())} of {int((width > 1).sum())} groups of cells drawn often enough to judge"
    spread = torch.where(judged, statistic / (width - 1).clamp(min=1), 0.0)
    inside = (groups == int(spread.argmax())).nonzero().flatten()
    high, low = inside[cells[inside].argmax()], inside[cells[inside].argmin()]
    witness = Witness(cell=cell_at(frequencies, int(high)), other=cell_at(frequencies, int(low)))
    holds = p_value >= LEVEL
    return Verdict(
        claim=setting,
        holds=holds,
        deviation=witness.cell.p - witness.other.p if witness.other else 0.0,
        p_value=p_value,
        witness=None if holds else witness,
        note=note,
    )


def examine(
    generator: Generator, num_classes: int, *, seed: int = 0, draws: int = DRAWS, instances: Tensor | None = None
) -> Proof:
    """Decide the claims of the map from draws alone: for generators that give no probabilities."""
    if instances is None:
        generator, instances = prepared(generator, num_classes)
    rng = stream(seed, "labels")
    counts = observe(generator, instances, num_classes, rng, draws)
    drawn = Verdict(claim=NORMALISED, holds=True, deviation=0.0, note="every draw was a set, neither empty nor full")
    return Proof(
        generator=generator.name,
        parameters=values_of(generator),
        declared=generator.setting,
        num_classes=num_classes,
        num_instances=len(instances),
        method="sampling",
        verdicts=(drawn, *(judge_claim(counts, setting) for setting in claims.CLAIMS)),
    )


def check_samples(generator: Generator, num_classes: int, *, seed: int = 0, draws: int = DRAWS) -> Verdict:
    """Test a generator's samples against its own probabilities, over all sets, at a few made instances."""
    ready, instances = prepared(generator, num_classes)
    counts = observe(ready, instances, num_classes, stream(seed, "labels"), draws)
    return compare(counts, law(ready, instances, num_classes))


def place(generator: Generator, num_classes: int, *, seed: int = 0) -> Proof:
    """Return where a generator lies on the map: by proof if it gives probabilities, by statistical test if not."""
    if num_classes > MAX_CLASSES:
        raise TheoryError(f"sets are enumerated for at most {MAX_CLASSES} classes, not {num_classes}")
    ready, instances = prepared(generator, num_classes)
    one = all_sets(num_classes)[:1]
    if ready.probability(one, instances[:1], torch.zeros(1, dtype=torch.long), num_classes) is None:
        return examine(ready, num_classes, seed=seed, instances=instances)
    return prove(ready, num_classes, instances)


def chi_square_tail(statistic: float, freedom: float) -> float:
    """Return P(χ² ≥ statistic); 1 where there is nothing to test."""
    if freedom <= 0:
        return 1.0
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
