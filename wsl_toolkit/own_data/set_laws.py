"""How candidate sets come about, given the true class: what can be learned of it from the sets themselves.

    p(s|x) = Σ_{j∈s} p(y=j|x) q(s|j),   q(s|j) = Π_{k≠j} Q_jk^{1{k∈s}} (1 - Q_jk)^{1{k∉s}}

Q_jk is the chance that class k is a candidate where j is true. Three laws, each with more freedom than the one before:

    uniform    Q_jk is one number, so that q(s|j) depends on |s| alone and says nothing about which candidate is true
    class      Q_jk depends on k: some classes are noted down more readily than others
    pair       Q_jk depends on both: some classes are taken for certain others

Under the second and third a candidate's share is r_j ∝ p_j q(s|j), and no longer p_j alone. Shares and Q are learned in
turn, which is expectation-maximisation (Dempster, Laird and Rubin, 1977) of the likelihood of whole sets. That one is
normalised over sets, so that laws can be compared by it; Σ_{j∈s} p_j cannot tell them apart.

Two rivals, under which r_j ∝ p_j after all, or nothing is known, and which a law must beat before it is believed:

    set        q(s|j) = C(s) for every j in s, whatever C: the same sets come again and again, as in scenes of one cast.
               Of these, the settings that depend on the set alone, the uniform law is the simplest.
    inputs     p(s|x) = Π_k p(k∈s|x), each learned from x: candidates that the inputs show beyond the class.

Without them the pair law would take scenes for classes: of whatever comes with certain sets, it makes the class that
explains them best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.losses import confined, log_softmax
from wsl_toolkit.settings import Kind, Setting
from wsl_toolkit.training.formulas import candidate_confidence

LAWS = ("uniform", "class", "pair")
"""Under which models are fitted."""
RIVALS = ("set", "inputs")
SURE = 1e-4
"""No class is taken to be so surely in or out of a set that a single example could refute it for good."""
PRIOR = 20.0
"""Examples that a chance of its own must be worth, beside the chance of the simpler law."""
ROUNDS, AGAIN = 10, 3
"""Rounds of expectation and maximisation from nothing, and from what the last ones found."""


def learned(logits: Tensor, sets: Tensor, law: str, counts: Tensor, start: Tensor | None = None) -> Tensor:
    """Return Q [K, K] of a law from a model's logits [n, K] on sets [n, K], which count so much each, [n, 1]."""
    chances = start
    for _ in range(ROUNDS if start is None else AGAIN):
        evidence = logits if chances is None else logits + log_chance(chances, sets)
        chances = _of_shares(counts * candidate_confidence(evidence, sets), sets, law)
    assert chances is not None
    return chances


def _of_shares(shares: Tensor, sets: Tensor, law: str) -> Tensor:
    """Return Q, where each example is of class j with a weight, [n, K]: relative frequencies, drawn to simpler ones."""
    inside = sets.to(shares.dtype)
    classes, others = sets.shape[1], 1 - torch.eye(sets.shape[1], dtype=shares.dtype)
    weight = shares.sum(0)
    together = (shares.T @ inside) * others
    chance = together.sum() / (weight.sum() * (classes - 1))
    if law == "uniform":
        return chance.expand(classes, classes)
    of_class = (together.sum(0) + PRIOR * chance) / (weight.sum() - weight + PRIOR)
    if law == "class":
        return of_class.expand(classes, classes)
    return (together + PRIOR * of_class) / (weight.unsqueeze(1) + PRIOR)


def log_chance(chances: Tensor, sets: Tensor) -> Tensor:
    """Return log q(s|j) of each set for every class j, [n, K]; it means nothing off the set."""
    others = 1 - torch.eye(len(chances), dtype=chances.dtype)
    chances = chances.clamp(SURE, 1 - SURE)
    held, left_out = chances.log() * others, torch.log1p(-chances) * others
    return sets.to(chances.dtype) @ (held - left_out).T + left_out.sum(1)


def log_worth(chances: Tensor, uniform: Tensor, sets: Tensor) -> Tensor:
    """Return log q(s|j) beside that of the uniform law, [n, K]: by how much a law makes a set likelier."""
    return log_chance(chances, sets) - log_chance(uniform, sets)


def log_worth_of_recurring(logits: Tensor, sets: Tensor, uniform: Tensor, asked: Tensor) -> Tensor:
    """Return log C(s) of some sets [m, K] beside that of the uniform law, [m, 1], by a model's logits on its own sets.

    C(s) is the share of s among the sets over the mean of Σ_{j∈s} p_j; the uniform law's counts as PRIOR sets.
    """
    mean = (torch.softmax(logits, 1) @ asked.to(logits.dtype).T).mean(0)
    flat = log_chance(uniform, asked).masked_fill(~asked, -torch.inf).amax(1).exp() * mean  # the same for all of s
    known, place = torch.unique(torch.cat([sets, asked]), dim=0, return_inverse=True)
    often = torch.bincount(place[: len(sets)], minlength=len(known))[place[len(sets) :]].to(flat.dtype)
    return ((often + PRIOR * flat) / ((len(sets) + PRIOR) * flat)).log().unsqueeze(1)


def inclusion_losses(logits: Tensor, sets: Tensor, uniform: Tensor) -> Tensor:
    """Return -log Π_k p(k∈s|x) of each set that is not empty, [n], beside log q(s) of the uniform law."""
    p = torch.sigmoid(logits.double()).clamp(SURE, 1 - SURE)
    told = torch.where(sets, p.log(), torch.log1p(-p)).sum(1)
    empty = torch.log1p(-p).sum(1)
    flat = log_chance(uniform, sets).masked_fill(~sets, -torch.inf).amax(1)
    return torch.log(-torch.expm1(empty)) - told + flat


def enlarged(chances: Tensor, classes: Tensor, num_classes: int) -> Tensor:
    """Return Q of some classes as one of all: a class that no set held never is a candidate."""
    whole = torch.zeros(num_classes, num_classes, dtype=chances.dtype)
    whole[classes.unsqueeze(1), classes] = chances
    return whole


def clearly_best(losses: Mapping[str, Tensor]) -> str:
    """Return one of LAWS from the log loss of each held-out set under each, and under the rivals, [n].

    The uniform one stays, unless another makes sets likelier than it and than each rival, by more than the standard
    error of the difference; so does the law of classes against that of pairs.
    """

    def beats(one: str, other: str) -> bool:
        gain = losses[other] - losses[one]
        return float(gain.mean()) > float(gain.std()) / math.sqrt(len(gain))

    found, *others = [law for law in LAWS[1:] if law in losses] or [LAWS[0]]
    for law in others:
        found = law if beats(law, found) else found
    alternatives = [name for name in (LAWS[0], *RIVALS) if name in losses and name != found]
    return found if all(beats(found, other) for other in alternatives) else LAWS[0]


@attrs.frozen(kw_only=True, eq=False)
class LawLikelihood(Estimator):
    """-log Σ_{j∈s} p_j q(s|j), beside that of the uniform law: what a network learns by where another law is known."""

    name: ClassVar[str] = "likelihood of the sets"
    assumption: ClassVar[Setting] = Setting.GENERAL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    chances: Tensor = attrs.field(repr=False)
    uniform: Tensor = attrs.field(repr=False)

    def init_state(self, candidates: Tensor) -> State:
        """What the law is worth to each candidate."""
        return {"worth": log_worth(self.chances, self.uniform, candidates.cpu()).float().to(candidates.device)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Return -log Σ_{j∈s} p_j w_j."""
        return self._terms(logits, candidates, state)[0]

    @property
    def has_gradient(self) -> bool:
        """That of -log Σ_j p_j w_j is p - r with r ∝ p w on the set."""
        return True

    def loss_and_gradient(self, logits: Tensor, candidates: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Return the losses and p - r."""
        losses, log_p, log_r = self._terms(logits, candidates, state)
        return losses, log_p.exp() - log_r.exp()

    def _terms(self, logits: Tensor, candidates: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return the losses, log p and log r: Σ_j p_j w_j = p_j w_j / r_j for any candidate j, here the likeliest."""
        inside = confined(logits + state["worth"], candidates)
        log_p, log_r, likeliest = log_softmax(logits), log_softmax(inside), inside.argmax(-1, keepdim=True)
        of_one = [each.gather(-1, likeliest) for each in (log_r, log_p, state["worth"])]
        return (of_one[0] - of_one[1] - of_one[2]).squeeze(-1), log_p, log_r
