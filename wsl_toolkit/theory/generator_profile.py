"""A generator in numbers: sizes, ambiguity, constants, examples; exact where sets can be enumerated."""

from __future__ import annotations

import math
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Generator
from wsl_toolkit.errors import WslError
from wsl_toolkit.labels.candidate_sets import CandidateSets, draw_in_chunks
from wsl_toolkit.parameters import values_of
from wsl_toolkit.settings import Setting
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.theory.enumeration import MAX_CLASSES, all_sets, law
from wsl_toolkit.theory.instances import MadeData, made_data
from wsl_toolkit.theory.proofs import Proof, Verdict
from wsl_toolkit.theory.sampling_tests import check_samples, place

SAMPLES = 20_000
EXAMPLES = 10


@attrs.frozen(kw_only=True)
class Estimate:
    """A number, exact or with its standard error."""

    value: float
    error: float = 0.0
    exact: bool = True


@attrs.frozen(kw_only=True)
class Constant:
    """C(x, s) over the sets of one size: from `low` to `high`, positive for `possible` of `sets` sets."""

    size: int
    low: float
    high: float
    possible: int
    sets: int


@attrs.frozen(kw_only=True, eq=False)
class GeneratorProfile:
    """All that `wsl inspect` shows of one configured generator."""

    generator: str
    parameters: dict[str, Any]
    declared: Setting
    num_classes: int
    proof: Proof | None
    """Where it lies; for more than 12 classes the same parameters at 12, or None if they do not fit."""
    samples: Verdict | None
    """Its draws against its probabilities, at the proof's number of classes; None where it gives none."""
    sizes: Tensor
    """P(|s| = k) for k = 0..K, float64 [K + 1]."""
    mean_size: Estimate
    sampled_mean_size: Estimate
    cooccurrence: Tensor
    """P(z ∈ s | y), float64 [K, K], averaged over instances."""
    ambiguity_degree: Estimate
    """sup of P(z ∈ s | x, y) over x, y and z ≠ y (Cour et al., 2011)."""
    constants: tuple[Constant, ...] | None
    """C(x, s) by size (Table 1); None if there is no such function, or it cannot be known."""
    examples: tuple[tuple[int, tuple[int, ...]], ...]
    """True labels and their sets."""


def profile_generator(generator: Generator, num_classes: int, *, seed: int = 0) -> GeneratorProfile:
    """Look at a generator on made data: by enumeration for up to 12 classes, by sampling beyond."""
    generator.check_classes(num_classes)
    data = made_data(num_classes)
    ready = generator.prepare(data.x, data.y, num_classes, stream(0, "training"))
    drawn, y = _draw(ready, data, num_classes, seed)
    sampled = Estimate(
        value=drawn.mean_size, error=float(drawn.sizes.double().std()) / math.sqrt(len(drawn)), exact=False
    )
    proof = _place(generator, num_classes, seed)
    enumerated = proof is not None and proof.method == "enumeration"
    table = law(ready, data.instances, num_classes) if enumerated and num_classes <= MAX_CLASSES else None
    sizes = _exact_sizes(table) if table is not None else _sizes_of_mcl(ready, num_classes)
    joint, degree = _ambiguity(table, sizes, drawn, y)
    proper = table is not None and proof is not None and Setting.PPL in proof.regions
    return GeneratorProfile(
        generator=generator.name,
        parameters=values_of(generator),
        declared=generator.setting,
        num_classes=num_classes,
        proof=proof,
        samples=check_samples(generator, proof.num_classes, seed=seed) if enumerated and proof else None,
        sizes=drawn.histogram().double() / len(drawn) if sizes is None else sizes,
        mean_size=sampled if sizes is None else Estimate(value=mean_of(sizes)),
        sampled_mean_size=sampled,
        cooccurrence=joint,
        ambiguity_degree=degree,
        constants=constants_by_size(table) if table is not None and proper else None,
        examples=tuple(
            (label, tuple(candidates))
            for label, candidates in zip(
                y[:EXAMPLES].tolist(), drawn.take(torch.arange(EXAMPLES)).to_sets(), strict=True
            )
        ),
    )


def mean_of(sizes: Tensor) -> float:
    """Return the mean of a law of sizes 0, 1, 2, …"""
    return float(sizes @ torch.arange(len(sizes), dtype=torch.float64))


def constants_by_size(table: Tensor) -> tuple[Constant, ...]:
    """Return C(x, s) of a proper law [n, 2^K - 2, K], by |s|."""
    num_classes = table.shape[2]
    sets = all_sets(num_classes)
    constant = (table * sets).sum(2) / sets.sum(1)  # [n, sets]: all cells with y in s are equal
    rows = []
    for size in range(1, num_classes):
        values = constant[:, sets.sum(1) == size]
        rows.append(
            Constant(
                size=size,
                low=float(values.min()),
                high=float(values.max()),
                possible=int((values > 0).any(0).sum()),
                sets=values.shape[1],
            )
        )
    return tuple(rows)


def _draw(ready: Generator, data: MadeData, num_classes: int, seed: int) -> tuple[CandidateSets, Tensor]:
    """Draw many sets; classes come in shuffled order, so the first examples show different ones."""
    index = torch.arange(len(data.y)).repeat(math.ceil(max(SAMPLES, 200 * num_classes) / len(data.y)))
    rng = stream(seed, "labels")
    sets = draw_in_chunks(lambda x, y: ready.draw(x, y, num_classes, rng), data.x[index], data.y[index], num_classes)
    return sets, data.y[index]


def _place(generator: Generator, num_classes: int, seed: int) -> Proof | None:
    """Place a generator; what cannot be enumerated at K classes is placed at 12, if the parameters fit there."""
    if num_classes <= MAX_CLASSES:
        return place(generator, num_classes, seed=seed)
    try:
        return place(generator, MAX_CLASSES, seed=seed)
    except WslError:
        return None


def _exact_sizes(table: Tensor) -> Tensor:
    """Return P(|s| = k), averaged over instances and classes."""
    num_classes = table.shape[2]
    by_set = table.mean(dim=(0, 2))
    return torch.zeros(num_classes + 1, dtype=torch.float64).index_add(0, all_sets(num_classes).sum(1), by_set)


def _sizes_of_mcl(ready: Generator, num_classes: int) -> Tensor | None:
    """Return P(|s| = k) beyond 12 classes for a generator of MCL: one set of each size tells all.

    P(|s| = k | y) = binom(K-1, k-1) p(s | y) for any set s of k classes that holds y. None if it is not declared MCL,
    gives no probability, or K is so large that its probabilities underflow.
    """
    if not Setting.MCL.includes(ready.setting):
        return None
    sets = torch.ones(num_classes - 1, num_classes, dtype=torch.bool).tril()
    y = torch.zeros(num_classes - 1, dtype=torch.long)
    p = ready.probability(sets, torch.zeros(num_classes - 1, 1), y, num_classes)
    if p is None:
        return None
    others = float(num_classes - 1)
    k = torch.arange(num_classes - 1, dtype=torch.float64)  # |s| - 1
    log_binomial = math.lgamma(others + 1) - torch.lgamma(k + 1) - torch.lgamma(others - k + 1)
    sizes = torch.zeros(num_classes + 1, dtype=torch.float64)
    sizes[1:num_classes] = torch.exp(p.double().log() + log_binomial)
    return sizes if math.isclose(float(sizes.sum()), 1, abs_tol=1e-6) else None


def _ambiguity(table: Tensor | None, sizes: Tensor | None, drawn: CandidateSets, y: Tensor) -> tuple[Tensor, Estimate]:
    """Return P(z ∈ s | y), averaged over instances, and the ambiguity degree, its largest value off the diagonal."""
    num_classes = drawn.num_classes
    diagonal = torch.eye(num_classes, dtype=torch.bool)
    if table is not None:
        by_instance = torch.einsum("nsy,sz->nyz", table, all_sets(num_classes).double())
        return by_instance.mean(0), Estimate(value=float(by_instance.masked_fill(diagonal, 0).max()))
    if sizes is not None:  # MCL: all wrong labels are alike, and E|s| - 1 of them join
        share = (mean_of(sizes) - 1) / (num_classes - 1)
        joint = torch.full((num_classes, num_classes), share, dtype=torch.float64)
        return joint.masked_fill_(diagonal, 1), Estimate(value=share)
    joint = drawn.given_label(y)
    degree = float(joint.masked_fill(diagonal, 0).max())
    draws = len(drawn) / num_classes
    return joint, Estimate(value=degree, error=math.sqrt(degree * (1 - degree) / draws), exact=False)
