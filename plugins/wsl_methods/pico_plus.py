"""Contrastive label disambiguation for sets that may miss the true label.

Wang, Xiao, Li, Feng, Niu, Chen, Zhao. PiCO+: Contrastive Label Disambiguation for Robust Partial Label Learning.
IEEE TPAMI 46(5), 2024.

After each epoch the share ρ of examples that are nearest to the prototype of their likeliest candidate,

    d = -q·μ_c,   c = argmax_{j∈s} p_j,

is taken for reliable (r = 1). Of these the targets t and the pseudo-labels are PiCO's; an unreliable example's
pseudo-label is argmax_j p_j over all classes, and its target is guessed: g = softmax(q·μ / T).

    L = CE_mix + β mean_{r=1} CE(t, p) + u mean_{r=0} CE(g, p) + mean_i w_i L_rel + u L_all
    L_all   PiCO's contrastive loss, everyone of the same pseudo-label a positive
    L_rel   the positives of a reliable example are the reliable ones of the same pseudo-label; those of an unreliable
            one are its nearest neighbours in the pool, once kNN has begun; one's own key is always positive
    w_i     λ if r = 1, else u, once kNN has begun; before it 1
    CE_mix  mixup of two weak views and of their targets (t or g)

Only reliable examples move the prototypes. The warm-up is PiCO's. All of it is settled as in the authors' code, whose
mixup also pairs examples of one batch; they count among its `neighbours` the example itself, which contrast leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_methods.machinery import (
    among,
    averaging,
    contrast,
    enqueued,
    no_self,
    one_hot,
    similarities,
    target_loss,
    top_candidate,
    unit,
)
from wsl_methods.pico import NEEDS, PrototypeEstimator
from wsl_toolkit import Estimator, State, param

if TYPE_CHECKING:
    from torch import Tensor

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class PicoPlus(PrototypeEstimator):
    """PiCO that tells reliable sets from unreliable ones by their distance to prototypes, and guesses for the latter.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "pico-plus"
    citation: ClassVar[str] = "Wang et al. (TPAMI 2024)"
    needs: ClassVar[frozenset[str]] = NEEDS | {"mixed"}

    warm_up: int = param(5, help="epochs before targets follow the prototypes and sets are judged", ge=0)
    reliable_share: float = param(0.6, help="ρ: share of the examples that is taken for reliable", gt=0, le=1)
    neighbours_from: int = param(100, help="epochs before unreliable examples are drawn to neighbours", ge=0)
    neighbours: int = param(16, help="positives of an unreliable example, itself among them", ge=1)
    guess_temperature: float = param(0.07, help="T of guessed targets", gt=0)
    unreliable_weight: float = param(0.1, help="u, the weight of unreliable examples", ge=0)
    reliable_weight: float = param(2.0, help="β, the weight of the reliable examples' cross-entropy", ge=0)

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike, and everyone reliable."""
        import torch

        n = len(candidates)
        return {
            **super().init_state(candidates),
            "distance": torch.zeros(n),
            "reliable": torch.ones(n, dtype=torch.bool),
        }

    def init_shared(self, candidates: CandidateSets) -> State:
        """PiCO's; the queue also knows who was reliable."""
        import torch

        shared = super().init_shared(candidates)
        return {**shared, "key_reliable": torch.zeros(len(shared["keys"]), dtype=torch.bool)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """PiCO's loss in the warm-up, then all five, each example's weighed so that their mean is L."""
        import torch

        warming = state["epoch"] < self.warm_up
        target, label = self._new_target(candidates, state), self._label(logits, candidates, state)
        classified = torch.where(warming, target_loss(logits, target), self._classified(logits, target, state))
        query, pool, labels = self.pool(label, state)
        others = no_self(len(query), len(labels), query.device) & (labels >= 0)
        near = self._nearest(similarities(query.detach(), pool), labels)
        weights = self._drawn_all_and_reliable(label, labels, near, others, state)
        others, weights = self.unless_warming(warming, others, weights)
        drawn = contrast(query, pool, others, weights, self.temperature)
        return classified + torch.where(warming, self.weight, 1.0) * drawn

    def _classified(self, logits: Tensor, target: Tensor, state: State) -> Tensor:
        """CE_mix and the weighted cross-entropies of reliable and unreliable examples."""
        import torch

        reliable = state["reliable"]
        guess = torch.softmax(self.affinity(state) / self.guess_temperature, dim=-1)
        best = torch.where(reliable.unsqueeze(1), target, guess)
        share, partner = state["mixed_share"], state["mixed_partner"]
        mixed = target_loss(state["mixed_logits"], share * best + (1 - share) * best[partner])
        weights = self.reliable_weight * among(reliable, logits) + self.unreliable_weight * among(~reliable, logits)
        return mixed + weights * target_loss(logits, best)

    def _drawn_all_and_reliable(
        self, label: Tensor, labels: Tensor, near: Tensor, others: Tensor, state: State
    ) -> Tensor:
        """Return the weights [B, N] with which w_i L_rel + u L_all draws queries to the pool."""
        import torch

        reliable, dtype = state["reliable"], state["features"].dtype
        alike = others & (labels == label.unsqueeze(1))
        trusted = torch.cat([reliable, reliable, state["key_reliable"]]) & reliable.unsqueeze(1)
        late = state["epoch"] >= self.neighbours_from
        own_key = ~no_self(len(others), len(labels), others.device).roll(len(others), dims=1)
        positives = ((alike & trusted) | (near & late & ~reliable.unsqueeze(1)) | own_key) & others
        weights = torch.where(reliable, self.weight, self.unreliable_weight)
        weights = torch.where(late, weights, torch.ones_like(weights)).to(dtype).unsqueeze(1)
        return weights * averaging(positives, dtype) + self.unreliable_weight * averaging(alike, dtype)

    def _nearest(self, similarity: Tensor, labels: Tensor) -> Tensor:
        """Return who is among the nearest in the pool, [B, N]."""
        import torch

        similarity = similarity.masked_fill(labels < 0, -torch.inf)
        chosen = similarity.topk(min(self.neighbours, len(labels)), dim=-1).indices
        return torch.zeros_like(similarity, dtype=torch.bool).scatter(1, chosen, True)

    def _label(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return top_candidate(logits.detach(), candidates | ~state["reliable"].unsqueeze(1))

    def _new_target(self, candidates: Tensor, state: State) -> Tensor:
        nearest = top_candidate(self.affinity(state), candidates)
        return self.moved(state, one_hot(nearest, state["target"]))

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """PiCO's updates, by reliable examples only, and everyone's distance to its prototype."""
        label, likeliest = self._label(logits, candidates, state), top_candidate(logits, candidates)
        reliable = state["reliable"]
        return {
            "target": self._new_target(candidates, state),
            "distance": -self.affinity(state).gather(1, likeliest.unsqueeze(1)).squeeze(1),
            "prototypes": self.followed(label, state, counted=reliable.to(state["prototypes"].dtype)),
            **enqueued(state, keys=unit(state["momentum_features"]), key_labels=label, key_reliable=state["reliable"]),
        }

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Take the nearest ρ for reliable, from the end of the warm-up on."""
        import torch

        count = int(len(state["distance"]) * self.reliable_share)
        near = torch.zeros_like(state["reliable"])
        near[torch.argsort(state["distance"], stable=True)[:count]] = True
        return {"reliable": torch.where(state["epoch"] + 1 >= self.warm_up, near, state["reliable"])}


ESTIMATORS: list[type[Estimator]] = [PicoPlus]
