"""The audit as a whole: count, test, recommend, and say it in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import DataError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data.audit.annotators import AnnotatorsReport, compare_annotators
from wsl_toolkit.own_data.audit.checks import Check, Verdict, checks_of_labels, checks_of_sets, settle
from wsl_toolkit.own_data.audit.counting import Counts, count
from wsl_toolkit.own_data.audit.posterior import out_of_fold_posterior
from wsl_toolkit.own_data.audit.recommend import Recommendation, recommend
from wsl_toolkit.own_data.learning import known_labels
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.settings import Setting
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.training.plan import ExecutionPlan


@attrs.frozen(kw_only=True, eq=False)
class Audit:
    """What an audit found."""

    name: str
    counts: Counts
    known_labels: int
    ambiguity_degree: float | None
    checks: tuple[Check, ...]
    verdicts: dict[Setting, tuple[Verdict, str]]
    recommendations: tuple[Recommendation, ...]
    features: tuple[int, ...]
    notes: tuple[str, ...]
    annotators: AnnotatorsReport | None = None
    """What is said of the annotators, where the data keeps them apart."""

    @property
    def best_estimator(self) -> str:
        """The first estimator of the list that can be used."""
        usable = [r.estimator for r in self.recommendations if r.fit != "cannot be used"]
        if not usable:
            raise DataError("no estimator that is installed can learn from candidate sets: see `wsl list estimator`")
        return usable[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the audit for JSON."""
        return {
            "data": self.name,
            "features": list(self.features),
            "counts": self.counts.to_dict(),
            "known_labels": self.known_labels,
            "ambiguity_degree": self.ambiguity_degree,
            "notes": list(self.notes),
            "checks": [check.to_dict() for check in self.checks],
            "settings": {str(s): {"verdict": v, "why": why} for s, (v, why) in self.verdicts.items()},
            "estimators": [found.to_dict() for found in self.recommendations],
            "annotations": None if self.annotators is None else self.annotators.to_dict(),
        }


STEPS = ("counting", "testing the sets", "testing true labels", "comparing annotators")


def audit(
    data: Data, registry: Registry, *, seed: int = 0, on_step: Callable[[str], None] = lambda step: None
) -> Audit:
    """Audit a dataset that brings its own candidate sets; `on_step` hears of each of `STEPS` as it begins."""
    candidates = data.candidates
    if candidates is None:
        raise DataError(f"{data.name} has no candidate sets to audit")
    if candidates.class_names is None and data.class_names is not None:
        candidates = candidates.named(data.class_names)
    rng = stream(seed, "audit")
    labels = known_labels(data)
    on_step(STEPS[0])
    counts = count(candidates)
    on_step(STEPS[1])
    # Thousands of small simulated collections: a second thread would cost more than it brings.
    with ExecutionPlan(threads=1).in_force():
        found, degree = _tests(data, candidates, labels, rng, on_step)
    verdicts = settle(found)
    people = None
    if data.annotators:
        on_step(STEPS[3])
        people = compare_annotators(data, registry, labels, rng)
    return Audit(
        name=data.name,
        counts=counts,
        known_labels=0 if labels is None else int((labels >= 0).sum()),
        ambiguity_degree=degree,
        checks=tuple(found),
        verdicts=verdicts,
        recommendations=tuple(recommend(registry, verdicts)),
        features=data.input_shape,
        notes=tuple(plain_words(counts, degree, verdicts)),
        annotators=people,
    )


def _tests(
    data: Data,
    candidates: CandidateSets,
    labels: Tensor | None,
    rng: torch.Generator,
    on_step: Callable[[str], None],
) -> tuple[list[Check], float | None]:
    """Return all checks, and the ambiguity degree where true labels are known."""
    found = checks_of_sets(candidates, rng)
    on_step(STEPS[2])
    if labels is None:
        return found, None
    known = (labels >= 0).nonzero().flatten()

    def posterior(index: Tensor) -> Tensor:
        return out_of_fold_posterior(data, index, labels[index], rng)

    found += checks_of_labels(candidates, labels, posterior, rng)
    return found, candidates.take(known).ambiguity_degree(labels[known])


def best_estimator(
    data: Data, registry: Registry, *, seed: int = 0, on_step: Callable[[str], None] = lambda step: None
) -> str:
    """Return the estimator to fit with, chosen on candidate sets alone: true labels may not select anything."""
    blind = attrs.evolve(data, y=None, known_y=None, annotators=())
    return audit(blind, registry, seed=seed, on_step=on_step).best_estimator


def plain_words(counts: Counts, degree: float | None, verdicts: dict[Setting, tuple[Verdict, str]]) -> list[str]:
    """Return what a practitioner should know, the gravest first."""
    notes = []
    if counts.labelled == 0:
        notes.append("Every set is full: no example says anything, so nothing can be learned.")
    notes += [
        f"{_listed(group)} only ever appear together: no method can tell them apart from these labels. "
        "Add labels that separate them, or merge them into one class."
        for group in counts.twins
    ]
    if counts.never:
        notes.append(f"No set holds {_listed(counts.never)}: nothing can be learned about such a class.")
    if counts.always and counts.labelled:
        notes.append(f"Every set holds {_listed(counts.always)}: no example speaks against it.")
    for j, k in counts.shadows[:SHADOWS_TOLD]:
        notes.append(f"{j} never appears without {k}: calling every {j} a {k} contradicts no set.")
    if len(counts.shadows) > SHADOWS_TOLD:
        notes.append(f"There are {len(counts.shadows) - SHADOWS_TOLD} more such pairs (see --json).")
    if counts.full:
        share = counts.full / counts.examples
        notes.append(f"{counts.full:,} examples ({share:.1%}) have every class as a candidate: they weigh nothing.")
    if degree == 1.0:
        notes.append("The ambiguity degree is 1: some wrong class accompanies a true one always.")
    if verdicts[Setting.GENERAL][0] == "refuted":
        notes.append(f"Some sets miss the true label: {verdicts[Setting.GENERAL][1]}. No setting allows for that.")
    return notes


SHADOWS_TOLD = 5


def _listed(names: tuple[str, ...], most: int = 8) -> str:
    shown = [repr(name) for name in names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def summary_lines(found: Audit) -> dict[str, str]:
    """Return the counts as lines for people."""
    counts = found.counts
    rate, j, k = counts.companion_rate
    lines = {
        "examples": f"{counts.examples:,}",
        "features": " × ".join(map(str, found.features)),
        "classes": str(counts.num_classes),
        "mean set size": f"{counts.mean_size:.2f}",
        "single candidate": f"{counts.singletons:,} ({counts.singletons / counts.examples:.1%})",
        "empty sets": "0 (refused when the file is read)",
        "full sets": f"{counts.full:,} (unlabelled: kept, weightless)",
        "most ambiguous pair": f"{rate:.0%} of the sets with {j} hold {k}",
        "known true labels": f"{found.known_labels:,}",
    }
    if found.ambiguity_degree is not None:
        lines["ambiguity degree"] = f"{found.ambiguity_degree:.3f}"
    return lines


def people_rows(found: AnnotatorsReport) -> list[tuple[str, ...]]:
    """Return a row for each annotator, under `PEOPLE`."""
    return [
        (
            person.name,
            f"{person.answers:,}",
            "" if person.mean_size is None else f"{person.mean_size:.2f}",
            " ".join(f"{size}:{share:.0%}" for size, share in person.sizes.items()),
            ""
            if person.reliability is None
            else f"{person.reliability:.1%} [{person.interval[0]:.1%}, {person.interval[1]:.1%}]",
            "" if person.holds_true_label is None else f"{person.holds_true_label:.1%}",
        )
        for person in found.people
    ]


PEOPLE = ("annotator", "answers", "mean size", "sizes", "holds the model's answer", "holds the true label")
PAIRS = ("pair", "examples", "a class in common", "mean |s∩t|/|s∪t|")
NEXT = ("example", "annotator", "bits", "of", "candidates")


def pair_rows(found: AnnotatorsReport) -> list[tuple[str, ...]]:
    """Return a row for each pair of annotators, under `PAIRS`."""
    return [
        (f"{pair.first}, {pair.second}", f"{pair.examples:,}", f"{pair.common:.1%}", f"{pair.jaccard:.3f}")
        for pair in found.agreements
    ]


def next_rows(found: AnnotatorsReport) -> list[tuple[str, ...]]:
    """Return a row for each example to look at, under `NEXT`."""
    return [
        (each.example, each.annotator, f"{each.reduction:.3f}", f"{each.entropy:.3f}", ", ".join(each.candidates))
        for each in found.look_next
    ]


def p_text(p: float | None) -> str:
    """Return a p-value for people."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
