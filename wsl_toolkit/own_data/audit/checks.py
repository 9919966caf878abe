"""Each setting's assumption tested on data, with a p-value and plain words.

What cannot be tested: from candidate sets alone, no data refute that sets depend on the set alone (CMM), let alone
properness. Maximum-likelihood class priors π satisfy Σ_{s∋y} p(s)/π(s) = 1 for every class with π_y > 0, so
C(s) = p(s)/π(s) is a proper law that explains any frequencies of sets exactly. True labels of some examples break
the tie, because a proper law says how often each candidate is the true one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import attrs
import torch
from torch import Tensor

from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data.audit import laws
from wsl_toolkit.settings import Setting

LEVEL = 0.01
"""An assumption is refuted where data this unusual would come less often than once in a hundred times."""

DRAWS = 199
"""Simulated collections behind a p-value: the smallest that can come out is 1/200 (Phipson and Smyth, 2010)."""

CELLS = 250_000
"""Simulations use a random part of about this many cells, at least `FEWEST` and at most `MOST` examples."""
FEWEST, MOST = 500, 20_000

ENOUGH_LABELS = 100
"""True labels that a test of properness needs at least."""

Verdict = Literal["refuted", "not refuted", "not testable"]


@attrs.frozen(kw_only=True)
class Check:
    """One assumption, one test, one verdict."""

    setting: Setting
    question: str
    method: str
    verdict: Verdict
    p_value: float | None
    words: str

    def to_dict(self) -> dict[str, Any]:
        """Return the check for JSON."""
        return {**attrs.asdict(self), "setting": str(self.setting)}


def checks_of_sets(candidates: CandidateSets, rng: torch.Generator) -> list[Check]:
    """Test what the candidate sets alone can refute: CL, PCPL and MCL."""
    informative = candidates.labelled()
    if len(informative) == 0:
        return []
    sizes = candidates.sizes[informative].cpu()
    mask = candidates.mask(_sample(informative, candidates.num_classes, rng)).cpu()
    mcl = uniform_within_sizes(mask, rng)
    if bool((sizes == candidates.num_classes - 1).all()):
        mcl = [attrs.evolve(complementary_balance(candidates, informative), setting=Setting.MCL)]
    return [complementary_law(candidates, informative, sizes), size_law(sizes, candidates.num_classes), *mcl]


def checks_of_labels(
    candidates: CandidateSets, labels: Tensor, posterior: Callable[[Tensor], Tensor] | None, rng: torch.Generator
) -> list[Check]:
    """Test what true labels of some examples (-1: unknown) can refute: MCL, CMM and properness.

    `posterior(index)` gives a model's p(y|x) of those examples, from a model that did not learn from them.
    """
    known = (labels >= 0) & (candidates.sizes < candidates.num_classes)
    index = known.nonzero().flatten()
    found: list[Check] = []
    if len(index) == 0:
        return found
    inside = candidates.mask(index).gather(1, labels[index][:, None]).squeeze(1)
    found.append(true_label_inside(inside))
    index = index[inside]
    if len(index) < ENOUGH_LABELS:
        return found
    index = _sample(index, candidates.num_classes, rng)
    mask, y = candidates.mask(index).cpu(), labels[index].cpu()
    # Where there is one candidate, the label is no choice and says nothing about how sets come about.
    found.append(uniform_given_label(mask, y, rng))
    open_sets = mask.sum(1) > 1
    if int(open_sets.sum()) < ENOUGH_LABELS:
        return found
    index, mask, y = index[open_sets], mask[open_sets], y[open_sets]
    found.append(choice_rule(Setting.CMM, None, mask, y, rng))
    if posterior is not None:
        found.append(choice_rule(Setting.PPL, posterior(index), mask, y, rng))
    return found


# ------------------------------------------------------------------ from the sets alone


def complementary_law(candidates: CandidateSets, informative: Tensor, sizes: Tensor) -> Check:
    """CL: every set leaves out exactly one class; then no class may be left out more often than 1/(K-1)."""
    num_classes = candidates.num_classes
    other = int((sizes != num_classes - 1).sum())
    if other:
        return Check(
            setting=Setting.CL,
            question="Does every example carry exactly one complementary label?",
            method="counting",
            verdict="refuted",
            p_value=0.0,
            words=f"{other:,} of {len(sizes):,} sets leave out a number of classes other than one",
        )
    return complementary_balance(candidates, informative)


def complementary_balance(candidates: CandidateSets, informative: Tensor) -> Check:
    """Where |s| = K-1 throughout, p(ȳ) = (1 - π_ȳ)/(K-1) ≤ 1/(K-1) is all that uniform complementary labels imply."""
    from scipy.special import bdtrc

    num_classes = candidates.num_classes
    full = len(candidates) - len(informative)
    left_out = len(candidates) - candidates.class_counts().cpu()
    assert full + int(left_out.sum()) == len(candidates)
    worst = int(left_out.argmax())
    p = bdtrc(int(left_out[worst]) - 1, len(informative), 1 / (num_classes - 1))  # so often, or more
    p = min(1.0, float(p) * num_classes)
    name = candidates.class_names[worst] if candidates.class_names else str(worst)
    return Check(
        setting=Setting.CL,
        question="Is the complementary label uniform among the wrong classes?",
        method="binomial test of the class that is left out most often, Bonferroni-corrected",
        verdict=_verdict(p),
        p_value=p,
        words=f"{name} is left out in {int(left_out[worst]) / len(informative):.1%} of the sets; "
        f"uniform labels leave out no class more often than {1 / (num_classes - 1):.1%}",
    )


def size_law(sizes: Tensor, num_classes: int) -> Check:
    """PCPL: |s| follows binom(K-1, k-1) / (2^(K-1) - 1), whatever the classes (Proposition 2)."""
    from scipy.special import chdtrc  # scipy.stats takes a second to import

    k = torch.arange(1, num_classes, dtype=torch.float64)
    log_binomial = math.lgamma(num_classes) - torch.lgamma(k) - torch.lgamma(num_classes - k + 1)
    share = torch.softmax(log_binomial, dim=0)
    observed = torch.bincount(sizes, minlength=num_classes)[1:num_classes].double()
    expected = share * len(sizes)
    rare = expected < 5  # too rare for a chi-square: together they are one cell
    cells = [torch.cat([part[~rare], part[rare].sum()[None]]) for part in (observed, expected)]
    counts, hopes = (cell if float(cells[1][-1]) > 0 else cell[:-1] for cell in cells)
    hopes = hopes * (counts.sum() / hopes.sum())
    p = float(chdtrc(len(counts) - 1, float(((counts - hopes) ** 2 / hopes).sum()))) if len(counts) > 1 else 1.0
    mean, hoped = float(sizes.double().mean()), float((k * share).sum())
    return Check(
        setting=Setting.PCPL,
        question="Are all admissible sets equally likely?",
        method="chi-square test of the sizes",
        verdict=_verdict(p),
        p_value=p,
        words=f"mean size {mean:.2f}; if all sets that hold the true label were equally likely it would be {hoped:.2f}",
    )


def uniform_within_sizes(mask: Tensor, rng: torch.Generator) -> list[Check]:
    """MCL: given the size, the classes beside the true one are uniform, and the size does not depend on the class."""
    num_classes, sizes = mask.shape[1], mask.sum(1)
    groups = _size_groups(sizes)

    def misfits(sets: Tensor) -> tuple[float, float]:
        priors = laws.class_priors(sets)
        cells = sets.float()
        pairs = (cells.T @ cells).double()
        upper = torch.triu(torch.ones_like(pairs), diagonal=1).bool()
        inclusions = torch.zeros(int(groups.max()) + 1, num_classes).index_add_(0, groups, cells).double()
        return (
            laws.misfit(pairs[upper], laws.expected_pairs(sizes, priors)[upper]),
            laws.misfit(inclusions, laws.expected_inclusions(sizes, groups, priors)),
        )

    observed = misfits(mask)
    priors = laws.class_priors(mask).clamp(min=0)
    everywhere = torch.ones_like(mask)
    drawn = []
    for _ in range(DRAWS):
        labels = laws.draw_labels(priors, everywhere, rng)
        drawn.append(misfits(laws.draw_uniform_given_size(labels, sizes, num_classes, rng)))
    method = f"simulation of {DRAWS} collections of the same sizes, {len(mask):,} sets each"
    questions = (
        ("Given the size, are all sets equally likely (pairs of candidates)?", "pairs of candidates"),
        ("Does the size of a set say nothing about the class?", "the classes in sets of each size"),
    )
    found = []
    for place, (question, what) in enumerate(questions):
        p = _simulated_p(observed[place], [values[place] for values in drawn])
        typical = sum(values[place] for values in drawn) / DRAWS
        found.append(
            Check(
                setting=Setting.MCL,
                question=question,
                method=method,
                verdict=_verdict(p),
                p_value=p,
                words=f"{what} deviate {observed[place] / max(typical, 1e-12):.1f} times as much as they do by chance",
            )
        )
    return found


# ------------------------------------------------------------------ from true labels of some examples


def true_label_inside(inside: Tensor) -> Check:
    """Is the true label among the candidates, as every setting assumes?"""
    from scipy.stats import binomtest

    outside = int((~inside).sum())
    low, high = binomtest(outside, len(inside)).proportion_ci(method="exact")
    words = f"{outside:,} of {len(inside):,} known labels are not among their candidates"
    if outside:
        words += f" (95 % interval {low:.1%} to {high:.1%} of all)"
    return Check(
        setting=Setting.GENERAL,
        question="Is the true label always a candidate?",
        method="counting",
        verdict="refuted" if outside else "not refuted",
        p_value=0.0 if outside else None,
        words=words,
    )


def uniform_given_label(mask: Tensor, labels: Tensor, rng: torch.Generator) -> Check:
    """MCL with known labels: beside y, every other class is as likely to be in the set."""
    num_classes, sizes = mask.shape[1], mask.sum(1)
    others = ~torch.eye(num_classes, dtype=torch.bool)
    share = torch.zeros(num_classes, dtype=torch.float64).index_add_(0, labels, (sizes.double() - 1)) / (
        num_classes - 1
    )
    expected = share[:, None].expand(num_classes, num_classes)[others]
    observed = laws.chosen_with(labels, mask)
    drawn = [
        laws.misfit(
            laws.chosen_with(labels, laws.draw_uniform_given_size(labels, sizes, num_classes, rng))[others], expected
        )
        for _ in range(DRAWS)
    ]
    p = _simulated_p(laws.misfit(observed[others], expected), drawn)
    counts = torch.bincount(labels, minlength=num_classes).clamp(min=1)[:, None]
    rate = (observed / counts).masked_fill(~others, 0)
    return Check(
        setting=Setting.MCL,
        question="Given the true label and the size, are all sets equally likely?",
        method=f"simulation of {DRAWS} collections with the {len(labels):,} known labels",
        verdict=_verdict(p),
        p_value=p,
        words=f"a wrong class accompanies a true one in up to {float(rate.max()):.0%} of its sets; "
        f"on average in {float(rate[others].mean()):.0%}",
    )


def choice_rule(
    setting: Setting, posterior: Tensor | None, mask: Tensor, labels: Tensor, rng: torch.Generator
) -> Check:
    """CMM or PPL with known labels: among the candidates, y is chosen as if the other candidates did not matter."""
    rule = laws.ChoiceRule(mask, None if posterior is None else posterior.clamp(min=1e-12).log())
    members = mask.double()

    def statistic(y: Tensor, parameters: Tensor) -> float:
        return laws.misfit(laws.chosen_with(y, mask), rule.shares(parameters).T @ members)

    fitted = rule.fit(labels, rule.parameters, FIT_STEPS)
    observed = statistic(labels, fitted)
    shares = rule.shares(fitted)
    drawn = []
    for _ in range(DRAWS):
        y = laws.draw_labels(shares, mask, rng)
        drawn.append(statistic(y, rule.fit(y, fitted, REFIT_STEPS)))
    p = _simulated_p(observed, drawn)
    ratio = observed / max(sum(drawn) / DRAWS, 1e-12)
    about = "given the instance (by a linear model of x)" if setting is Setting.PPL else "whatever the instance"
    return Check(
        setting=setting,
        question={
            Setting.CMM: "Do the sets depend on the true label only by holding it?",
            Setting.PPL: "Are the labels proper: given x, does the set not depend on which candidate is true?",
        }[setting],
        method=f"choice model on {len(labels):,} known labels, {DRAWS} simulations",
        verdict=_verdict(p),
        p_value=p,
        words=f"which candidate is the true one deviates {ratio:.1f} times as much as it does by chance, {about}",
    )


FIT_STEPS = 30
REFIT_STEPS = 2
"""Newton steps from zero, and from the fitted parameters to those of a collection simulated with them."""


# ------------------------------------------------------------------ together


def settle(checks: list[Check]) -> dict[Setting, tuple[Verdict, str]]:
    """Return every setting's verdict with its reason; what refutes a setting refutes those inside it."""
    verdicts: dict[Setting, tuple[Verdict, str]] = {}
    for setting in (Setting.CL, Setting.PCPL, Setting.MCL, Setting.CMM, Setting.PPL, Setting.GENERAL):
        refuting = [c for c in checks if c.verdict == "refuted" and c.setting.includes(setting)]
        tested = [c for c in checks if c.setting is setting and c.verdict == "not refuted"]
        if refuting:
            verdicts[setting] = ("refuted", refuting[0].words)
        elif tested:
            verdicts[setting] = ("not refuted", tested[0].words)
        else:
            verdicts[setting] = ("not testable", UNTESTABLE)
    return verdicts


UNTESTABLE = "candidate sets alone never refute it; true labels of a hundred examples or more could"


def _verdict(p: float) -> Verdict:
    return "refuted" if p < LEVEL else "not refuted"


def _simulated_p(observed: float, drawn: list[float]) -> float:
    return (1 + sum(value >= observed for value in drawn)) / (1 + len(drawn))


def _sample(index: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    most = min(MOST, max(FEWEST, CELLS // num_classes))
    return index if len(index) <= most else index[torch.randperm(len(index), generator=rng)[:most]].sort().values


def _size_groups(sizes: Tensor) -> Tensor:
    """Return a group for each example, at most four, cut at quartiles of the size so that none is nearly empty."""
    cuts = sizes.double().quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).unique()
    groups: Tensor = torch.bucketize(sizes.double(), cuts).unique(return_inverse=True)[1]
    return groups
