"""Which examples a person should look at: sets that leave the label open, and sets that seem to miss it.

Let P = Σ_{j∈s} p_j be what models that did not learn from an example give its set, r the share of its label in P, k the
size of the set and K the number of classes. Suppose that a share e of the sets misses the true class, and that sets of
one size are equally likely otherwise: p(s | x, it holds the truth) = P / binom(K-1, k-1), and p(s | x, it misses it) =
(1 - P) / binom(K-1, k). Then Bayes' rule gives the odds of a miss,

    m / (1 - m) = e / (1 - e) · (1 - P) / P · k / (K - k).

The last factor is what the size is worth: a set drawn blindly would hold k/K of the probability, so that a large set
which holds little is stranger than a small one. The label is wrong if the set misses the truth, or if it holds it and
the label is another candidate: 1 - (1-m) r = m + (1-m)(1-r). By that sum the ambiguous come first: no other order has
more wrong labels among its first, if the probabilities are true. The suspicious come by m, as long as it is above 1/2.

The probabilities were calibrated as if every set held the truth: where some do not, their temperature is too high, and
would explain most misses away. So P and r above are at a lower temperature, which is found together with e.
"""

from __future__ import annotations

import math

import attrs
import torch
from torch import Tensor

from wsl_toolkit.own_data import calibration
from wsl_toolkit.training.formulas import candidate_confidence

MISSES, HITS = 1.0, 19.0
"""What is believed of e before the data: as if so many sets had been seen to miss the truth, and so many to hold it."""
STEPS = 60
"""Halvings of an interval in which e is looked for."""
SHARPEST, SHARPENINGS = 0.2, 33
"""How far a temperature may be lowered for the sake of sets that miss the truth, and how many values are tried."""

ROUNDS, MOST_SETS = 50, 20_000
"""So often frequencies of classes are made better, and so many sets are looked at for that."""
FEW_LABELS = 20
"""Fewer known labels say nothing about how many are right."""
DEVIATIONS = 2.0
"""What is less than so many standard errors better than guessing is called no better."""
TOO_SURE = 0.1
"""Confidences that are higher than the share of right labels by so much are remarked upon."""


@attrs.frozen(kw_only=True, eq=False)
class Review:
    """For each example how its label may be wrong, and its place in two lists, 1 for the first, [n] each."""

    missed: Tensor
    """m: the probability that the set misses the true class."""
    ambiguous: Tensor
    """By the probability that the label is wrong."""
    suspicious: Tensor
    """First those whose set probably misses the truth, by the odds of that; then as in the other list."""
    miss_rate: float
    """e: the share of sets that are thought to miss the truth."""


def log_odds_of_a_miss(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return log((1-P)/P · k/(K-k)) of each example, [n], in float64; -inf for full sets, which can miss nothing."""
    z, classes = logits.double(), candidates.shape[1]
    inside, outside = (torch.logsumexp(z.masked_fill(mask, -math.inf), 1) for mask in (~candidates, candidates))
    size = candidates.sum(1).double()
    return torch.where(size < classes, outside - inside + (size / (classes - size)).log(), -math.inf)


def miss_rate(log_odds: Tensor) -> float:
    """Return e in [0, 1/2] that makes the sets likeliest, a little prior belief included; full sets do not count.

    The derivative of Σ log(1 - e + e R) + log prior falls with e, so that halving an interval finds where it is 0.
    """
    gain = (log_odds[log_odds > -math.inf].clamp(max=700).exp() - 1).double()
    low, high = 0.0, 0.5
    for _ in range(STEPS):
        e = (low + high) / 2
        slope = float((gain / (1 + e * gain)).sum()) + MISSES / e - HITS / (1 - e)
        low, high = (e, high) if slope > 0 else (low, e)
    return (low + high) / 2


def sharpened(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return logits / t, t ≤ 1, at the temperature that is likeliest if some sets may miss the truth.

    t and e maximise Σ log((1-e) P_t + e (1-P_t) k/(K-k)) and their priors: e's, and that of a temperature, under which
    log t is normal around 0. Both are needed at once: one temperature for all sets can only be too high where a few
    contradict the model, and with it e is found too low.
    """
    some = (~candidates.all(1)).nonzero().flatten()
    some = some[:: max(1, len(some) // MOST_SETS)]
    z, sets = logits[some].double(), candidates[some]
    best, found = -math.inf, 1.0
    for log_t in torch.linspace(0.0, math.log(SHARPEST), SHARPENINGS, dtype=torch.float64).tolist():
        at = z / math.exp(log_t)
        odds = log_odds_of_a_miss(at, sets)
        e = miss_rate(odds)
        likelihood = torch.log1p(e * (odds.clamp(max=700).exp() - 1)) - calibration.set_log_losses(at, sets)
        prior = MISSES * math.log(e) + HITS * math.log(1 - e) - log_t**2 / (2 * calibration.SPREAD**2)
        value = float(likelihood.sum()) + prior
        if value > best:
            best, found = value, math.exp(log_t)
    return logits.double() / found


def review(log_odds: Tensor, confidence: Tensor) -> Review:
    """Put examples in order for a person to look at; equal ones keep their order.

    Both of each example [n]: the odds of a miss but for e's, and r, the share of its label in what its set is given.
    """
    e = miss_rate(log_odds)
    own_odds = log_odds + math.log(e / (1 - e))
    missed = torch.sigmoid(own_odds)
    wrong = 1 - (1 - missed) * confidence.double()
    return Review(
        missed=missed,
        ambiguous=_places(wrong),
        suspicious=_places(torch.where(own_odds > 0, 1 + own_odds, wrong)),
        miss_rate=e,
    )


def _places(need: Tensor) -> Tensor:
    """Return each example's place when those with the greatest need come first."""
    order = torch.argsort(need, descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(1, len(order) + 1)
    return rank


# ------------------------------------------------------------------ remarks


def class_frequencies(candidates: Tensor) -> Tensor:
    """Return p(y) that makes the sets likeliest, Σ log Σ_{j∈s} p_j, by expectation and maximisation, float64 [K]."""
    share = torch.full((candidates.shape[1],), 1 / candidates.shape[1], dtype=torch.float64)
    for _ in range(ROUNDS):
        share = candidate_confidence(share.log().expand(len(candidates), -1), candidates).mean(0)
        share = share.clamp(min=1e-12) / share.clamp(min=1e-12).sum()
    return share


def remarks(set_losses: Tensor, candidates: Tensor, confidence: Tensor, right: Tensor) -> list[str]:
    """Return in plain sentences that labels are no better than guesses, or less sure than they seem.

    `set_losses` are -log P of each example, `right` is 1 or 0 where the true label is known, and NaN elsewhere.
    """
    open_sets = candidates.sum(1) > 1
    known = ~right.isnan() & open_sets
    found = []
    if int(known.sum()) >= FEW_LABELS:
        found += _against_labels(right[known].double(), candidates[known], confidence[known].double())
    informative = ~candidates.all(1)
    if bool(informative.any()) and not found:  # labels, where they are known, are the better witnesses
        some = informative.nonzero().flatten()
        some = some[:: max(1, len(some) // MOST_SETS)]
        found += _against_frequencies(set_losses[some].double(), candidates[some])
    return found


def _against_labels(right: Tensor, candidates: Tensor, confidence: Tensor) -> list[str]:
    """Compare labels of sets of several classes with what a candidate drawn at random would be."""
    chance = 1 / candidates.sum(1).double()
    share, guess = float(right.mean()), float(chance.mean())
    error = float((chance * (1 - chance)).sum().sqrt()) / len(right)
    sure = float(confidence.mean())
    found = []
    if share <= guess + DEVIATIONS * error:
        found.append(
            f"The labels are no better than guesses: of {len(right):,} known ones in sets of several classes "
            f"{share:.0%} are right, and a candidate drawn at random would be right in {guess:.0%}. "
            "Do not use them as they are"
        )
    spread = math.sqrt(max(share * (1 - share), 0.25 / len(right)) / len(right))
    if sure - share > max(TOO_SURE, DEVIATIONS * spread):
        found.append(
            f"The confidences are too high: {sure:.2f} on average in sets of several classes, where {share:.2f} of the "
            "known labels are right"
        )
    return found


def _against_frequencies(set_losses: Tensor, candidates: Tensor) -> list[str]:
    """Compare the likelihood of the sets with what the classes' frequencies alone make of it, without any input."""
    logits = class_frequencies(candidates).log().expand(len(candidates), -1)
    gain = calibration.set_log_losses(logits, candidates) - set_losses
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    if float(gain.mean()) > DEVIATIONS * error:
        return []
    return [
        "The labels are little better than guesses: to models that did not see them the candidate sets are no likelier "
        "than the classes' frequencies alone make them, so that the inputs told nothing about the sets"
    ]
