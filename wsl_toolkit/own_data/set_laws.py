"""How candidate sets come about, given the true class: what can be learned of it from the sets themselves.

    p(s|x) = Σ_{j∈s} p(y=j|x) q(s|j),   q(s|j) = Π_{k≠j} Q_jk^{1{k∈s}} (1 - Q_jk)^{1{k∉s}}

Q_jk is the chance that class k is a candidate where j is true. Three laws, each with more freedom than the one before:

    uniform    Q_jk is one number, so that q(s|j) depends on |s| alone and says nothing about which candidate is true
    class      Q_jk depends on k: some classes are noted down more readily than others
    pair       Q_jk depends on both: some classes are taken for certain others

Under the second and third a candidate's share is r_j ∝ p_j q(s|j), and no longer p_j alone. Shares and Q are learned in
turn, which is expectation-maximisation (Dempster, Laird and Rubin, 1977) of the likelihood of whole sets. That one is
normalised over sets, so that laws can be compared by it; Σ_{j∈s} p_j cannot tell them apart. Where wrong candidates
depend on x beyond the class, none of these laws holds.
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


def enlarged(chances: Tensor, classes: Tensor, num_classes: int) -> Tensor:
    """Return Q of some classes as one of all: a class that no set held never is a candidate."""
    whole = torch.zeros(num_classes, num_classes, dtype=chances.dtype)
    whole[classes.unsqueeze(1), classes] = chances
    return whole


def clearly_best(losses: Mapping[str, Tensor]) -> str:
    """Return a law from the log loss of each held-out set under each, [n].

    The simplest one stays, unless another makes sets likelier by more than the standard error of the difference.
    """
    first, *others = [law for law in LAWS if law in losses]
    for law in others:
        gain = losses[first] - losses[law]
        if float(gain.mean()) > float(gain.std()) / math.sqrt(len(gain)):
            first = law
    return first


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
