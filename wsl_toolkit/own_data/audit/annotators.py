"""Annotators kept apart: how they agree, how large their sets are, how often these hold a model's answer, and which
examples an annotator should look at first.

The model never saw the example that it answers: linear, trained on the combined candidate sets of the other folds. Its
answer stands in for the true label, so a reliability is a share of agreement with it, and one who names many classes is
easily reliable: the mean size stands beside it.
"""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.annotators import Annotator
from wsl_toolkit.labels.candidate_sets import CHUNK_CELLS
from wsl_toolkit.own_data.choices import NetworkChoice
from wsl_toolkit.own_data.learning import Learner, own_candidates
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.system.statistics import wilson
from wsl_toolkit.training.config import DEFAULT_COMPONENTS, Training
from wsl_toolkit.training.formulas import candidate_confidence

FOLDS, STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 3, 1500, 5, 50
MOST_CANDIDATES = 6
"""What an answer would tell is worked out for so many candidates of an example, the likeliest ones."""
SHOWN = 20
"""So many examples are named to be looked at."""
LEAST = 1e-3
"""No annotator is taken for one who never errs, or never names a wrong class."""


@attrs.frozen(kw_only=True)
class Person:
    """What is known of one annotator."""

    name: str
    answers: int
    mean_size: float | None
    """None, like all shares of nothing, where there is no answer."""
    sizes: dict[int, float]
    """The share of their sets that have each size: their size law."""
    reliability: float | None
    """The share of their sets that hold the model's out-of-fold answer."""
    interval: tuple[float, float]
    """Wilson's 95 % interval of it."""
    holds_true_label: float | None
    """The share of their sets that hold the true label, where it is known."""
    wrong_rate: float | None
    """ε: how often they name a given wrong class, (mean size - reliability) / (K - 1)."""


@attrs.frozen(kw_only=True)
class Agreement:
    """How two annotators agree on the examples that both answered."""

    first: str
    second: str
    examples: int
    common: float
    """The share of examples on which their sets have a class in common."""
    jaccard: float
    """The mean of |s ∩ t| / |s ∪ t|."""


@attrs.frozen(kw_only=True)
class LookNext:
    """An example that an annotator should look at, and what that is expected to tell."""

    example: str
    annotator: str
    reduction: float
    """By how many bits the entropy of the belief about its label is expected to fall."""
    entropy: float
    """That entropy as it is."""
    candidates: tuple[str, ...]


@attrs.frozen(kw_only=True)
class AnnotatorsReport:
    """What the audit says of the annotators."""

    people: tuple[Person, ...]
    agreements: tuple[Agreement, ...]
    look_next: tuple[LookNext, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return attrs.asdict(self)


def compare_annotators(data: Data, registry: Registry, labels: Tensor | None, rng: torch.Generator) -> AnnotatorsReport:
    """Say all that can be said of annotators: `labels` are true ones, -1 where one is not known."""
    logits = out_of_fold_logits(data, registry, rng)
    answers = logits.argmax(1)
    people = tuple(describe(one, answers, labels) for one in data.annotators)
    pairs = itertools.combinations(data.annotators, 2)
    agreements = tuple(found for one, other in pairs if (found := agreement(one, other)) is not None)
    return AnnotatorsReport(people=people, agreements=agreements, look_next=look_next(data, people, logits))


def out_of_fold_logits(data: Data, registry: Registry, rng: torch.Generator) -> Tensor:
    """Return the logits [n, K] of linear models, each on the examples that it did not learn from."""
    n = len(data.x)
    fold = torch.randperm(n, generator=rng) % min(FOLDS, n)
    batch = 64 if n <= 10_000 else 256
    epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, STEPS * batch // n))
    choice = NetworkChoice(
        backbone=registry.create("backbone", DEFAULT_COMPONENTS["backbone"], {}),
        training=Training(epochs=epochs, batch_size=batch, lr=0.05, seed=0),
    )
    estimator = registry.create("estimator", DEFAULT_COMPONENTS["estimator"], {})
    parts = [((fold != k).nonzero().flatten(), (fold == k).nonzero().flatten()) for k in fold.unique().tolist()]
    logits = torch.empty(n, data.num_classes)
    learner = Learner(data=data, registry=registry, estimator=estimator, seed=0)
    for (_, held_out), (made,) in zip(parts, learner.fit([choice], parts), strict=True):
        logits[held_out] = made.logits[0].float()
    return logits


def describe(one: Annotator, answers: Tensor, labels: Tensor | None) -> Person:
    """Return what the sets of an annotator say, given a model's answers [n]."""
    index = one.answered.nonzero().flatten()
    n, classes = len(index), one.sets.num_classes
    held = int(_holds(one, index, answers).sum())
    given = one.sets.sizes.cpu()[index]
    sizes = torch.bincount(given, minlength=classes + 1)
    mean_size = float(given.double().mean()) if n else None
    reliability = held / n if n else None
    wrong = None if mean_size is None or reliability is None else (mean_size - reliability) / max(classes - 1, 1)
    known = index if labels is None else index[labels[index] >= 0]
    true = None
    if labels is not None and len(known):
        true = float(_holds(one, known, labels).double().mean())
    return Person(
        name=one.name,
        answers=n,
        mean_size=mean_size,
        sizes={size: int(count) / n for size, count in enumerate(sizes.tolist()) if count},
        reliability=reliability,
        interval=wilson(held, n),
        holds_true_label=true,
        wrong_rate=wrong,
    )


def _holds(one: Annotator, index: Tensor, labels: Tensor) -> Tensor:
    """Return of some examples whether the annotator's sets hold their labels."""
    parts = index.split(max(1, CHUNK_CELLS // one.sets.num_classes))
    found = [one.sets.mask(part).cpu().gather(1, labels[part].unsqueeze(1)).squeeze(1) for part in parts]
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.bool)


def agreement(one: Annotator, other: Annotator) -> Agreement | None:
    """Return how two annotators agree; None where they answered no example in common."""
    index = (one.answered & other.answered).nonzero().flatten()
    if len(index) == 0:
        return None
    common, jaccard = 0.0, 0.0
    for part in index.split(max(1, CHUNK_CELLS // one.sets.num_classes)):
        first, second = one.sets.mask(part), other.sets.mask(part)
        both, either = (first & second).sum(1).double(), (first | second).sum(1).double()
        common += float((both > 0).sum())
        jaccard += float((both / either).sum())
    n = len(index)
    return Agreement(first=one.name, second=other.name, examples=n, common=common / n, jaccard=jaccard / n)


# --------------------------------------------------------------------------------------------------- what to look at


def expected_reduction(belief: Tensor, reliability: float, wrong_rate: float) -> Tensor:
    """Return by how many bits one more answer is expected to lower the entropy of each belief, [n, m] to [n].

    The annotator names the true class with probability ρ and each wrong one with probability ε, independently. The
    reduction is the mutual information of label and answer, by enumeration of the 2^m answers b:
    I = H(p) - Σ_b P(b) H(p | b), where P(b) = Σ_j p_j P(b | j) and
    P(b | j) = ρ^{b_j} (1-ρ)^{1-b_j} Π_{k≠j} ε^{b_k} (1-ε)^{1-b_k}.
    """
    m = belief.shape[1]
    if len(belief) > (rows := max(1, CHUNK_CELLS // (m * 2**m))):
        return torch.cat([expected_reduction(part, reliability, wrong_rate) for part in belief.split(rows)])
    named = torch.tensor(list(itertools.product((0.0, 1.0), repeat=m)), dtype=torch.float64)
    rho = min(max(reliability, LEAST), 1 - LEAST)
    wrong = min(max(wrong_rate, LEAST), 1 - LEAST)
    if_true = named * rho + (1 - named) * (1 - rho)
    if_wrong = named * wrong + (1 - named) * (1 - wrong)
    likelihood = if_wrong.prod(1, keepdim=True) / if_wrong * if_true  # [2^m, m]
    joint = belief.double().unsqueeze(1) * likelihood
    answer = joint.sum(2, keepdim=True)
    after = answer.squeeze(2) * entropy(joint / answer.clamp(min=1e-300))
    return (entropy(belief.double()) - after.sum(1)).clamp(min=0)


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy of the last dimension in bits."""
    return -torch.xlogy(probabilities, probabilities).sum(-1) / torch.log(torch.tensor(2.0, dtype=torch.float64))


def look_next(data: Data, people: tuple[Person, ...], logits: Tensor) -> tuple[LookNext, ...]:
    """Return the examples from which one more answer is expected to tell most, and whose.

    The belief is the model's probability of each candidate, p_j / Σ_{k∈s} p_k. Only those are asked who have not
    answered an example, unless everybody has answered everything.
    """
    candidates = own_candidates(data)
    belief, entropies = _beliefs(data, logits)
    rates = [
        (person.name, person.reliability, person.wrong_rate)
        for person in people
        if person.reliability is not None and person.wrong_rate is not None and person.reliability > person.wrong_rate
    ]
    if not rates:
        return ()
    answered = {one.name: one.answered for one in data.annotators}
    gains = torch.stack([expected_reduction(belief, right, wrong) for _, right, wrong in rates], 1)
    done = torch.stack([answered[name] for name, _, _ in rates], 1)
    if not bool(done.all()):
        gains = gains.masked_fill(done, 0.0)
    best, whose = gains.max(1)
    names = data.class_names or candidates.class_names or tuple(str(j) for j in range(data.num_classes))
    found = []
    for row in torch.argsort(best, descending=True, stable=True)[:SHOWN].tolist():
        if best[row] <= 0:
            break
        members = candidates.mask(torch.tensor([row])).flatten().nonzero().flatten().tolist()
        found.append(
            LookNext(
                example=str(row) if data.ids is None else data.ids[row],
                annotator=rates[int(whose[row])][0],
                reduction=float(best[row]),
                entropy=float(entropies[row]),
                candidates=tuple(names[j] for j in members),
            )
        )
    return tuple(found)


def _beliefs(data: Data, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the likeliest candidates' probabilities [n, m], that sum to one, and the entropy over all candidates."""
    candidates = own_candidates(data)
    most = min(MOST_CANDIDATES, data.num_classes)
    beliefs, entropies = [], []
    for part in torch.arange(len(logits)).split(max(1, CHUNK_CELLS // data.num_classes)):
        share = candidate_confidence(logits[part].double(), candidates.mask(part).cpu())
        top = share.topk(most, dim=1).values
        beliefs.append(top / top.sum(1, keepdim=True))
        entropies.append(entropy(share))
    return torch.cat(beliefs), torch.cat(entropies)
