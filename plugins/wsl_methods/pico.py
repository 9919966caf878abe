"""Contrastive label disambiguation.

Wang, Xiao, Li, Feng, Niu, Chen, Zhao. PiCO: Contrastive Label Disambiguation for Partial Label Learning. ICLR 2022.

    L = L_cls + λ L_cont
    L_cls  = -Σ_j t_j log p_j                                         t: the example's target, kept between visits
    L_cont = -1/|P| Σ_{k∈P} log exp(q·k/τ) / Σ_{k'∈A} exp(q·k'/τ)     A: the batch's queries but q, its keys and the
                                                                      queue; P: those with the pseudo-label of q
    ŷ   = argmax_{j∈s} p_j                the pseudo-label
    t   ← φ t + (1-φ) e_c                 with c = argmax_{j∈s} q·μ_j
    μ_c ← normalise(γ μ_c + (1-γ) q)      for the q whose pseudo-label is c, one after another

Queries are embeddings of weak views by the network, keys of strong views by its momentum copy. In the first epochs
pseudo-labels mean nothing: t stays, P is the example's own key, and A that key and the queue (MoCo).

Settled as in the authors' code: targets move before the loss is taken, prototypes and queue after it; P and A hold
the batch's queries too. Settled here: places of the queue that nothing has filled yet are left out, where theirs hold
random vectors, and there are no more places than examples; φ falls from 0.95 to 0.8 over `ramp` epochs, theirs over all
epochs of a run, which an estimator is not told; their 800 is the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_methods.machinery import (
    AugmentedEstimator,
    averaging,
    contrast,
    empty_queue,
    enqueued,
    followed,
    no_self,
    one_hot,
    projection,
    target_loss,
    top_candidate,
    uniform,
    unit,
)
from wsl_toolkit import Estimator, Kind, Setting, State, param

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets

NEEDS = frozenset({"weak_view", "features", "momentum", "momentum_view", "epoch"})


@attrs.frozen(kw_only=True)
class PrototypeEstimator(AugmentedEstimator):
    """Targets that follow class prototypes in a space of embeddings that contrast shapes."""

    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    needs: ClassVar[frozenset[str]] = NEEDS
    stackable: ClassVar[bool] = False
    lag: ClassVar[int] = 1
    """How many epochs φ is behind: the authors of PiCO set it at the end of an epoch, counted from 0, for the next."""

    weight: float = param(0.5, help="λ, the weight of the contrastive loss", ge=0)
    temperature: float = param(0.07, help="τ of the contrastive loss", gt=0)
    prototype_decay: float = param(0.99, help="γ: how slowly prototypes follow", ge=0, lt=1)
    network_decay: float = param(0.999, help="how slowly the copy of the network follows", ge=0, lt=1)
    target_decay: tuple[float, ...] = param((0.95, 0.8), help="φ at the start and at the end of the ramp", ge=0, le=1)
    ramp: int = param(800, help="epochs over which φ goes from its first to its second value", ge=1)
    warm_up: int = param(1, help="epochs before targets follow the prototypes", ge=0)
    queue: int = param(8192, help="embeddings that are kept to contrast with, at most one an example", ge=1)
    width: int = param(128, help="size of an embedding", ge=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put views, a projection head and a momentum copy around the network."""
        from wsl_toolkit.networks import Extended

        head = projection(network, self.width)
        return Extended(network, self.needs, project=head, decay=self.network_decay, **self.views())

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"target": uniform(candidates)}

    def init_shared(self, candidates: CandidateSets) -> State:
        """No prototypes yet, and an empty queue, whose labels are -1."""
        import torch

        queue = empty_queue(self.queue, len(candidates), keys=torch.zeros(self.width), key_labels=torch.tensor(-1))
        return {"prototypes": torch.zeros(candidates.num_classes, self.width), **queue}

    def moved(self, state: State, pull: Tensor) -> Tensor:
        """t ← φ t + (1-φ) pull, once the warm-up is over."""
        import torch

        first, last = self.target_decay[0], self.target_decay[-1]
        behind = (state["epoch"] - self.lag).clamp(min=0)
        decay = first + (last - first) * (behind / self.ramp).clamp(max=1)
        moved = decay * state["target"] + (1 - decay) * pull
        return torch.where(state["epoch"] < self.warm_up, state["target"], moved)

    def affinity(self, state: State) -> Tensor:
        """q·μ_j for every class j, [B, K], a constant."""
        return unit(state["features"].detach()) @ state["prototypes"].T

    def contrasted(self, label: Tensor, state: State, warming: Tensor | None = None) -> Tensor:
        """L_cont of each example: everyone of the same pseudo-label is positive; while warming, one's own key alone."""
        query, pool, labels = self.pool(label, state)
        others = no_self(len(query), len(labels), query.device) & (labels >= 0)
        weights = averaging(others & (labels == label.unsqueeze(1)), query.dtype)
        if warming is not None:
            others, weights = self.unless_warming(warming, others, weights)
        return contrast(query, pool, others, weights, self.temperature)

    def unless_warming(self, warming: Tensor, others: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return who is contrasted with and with which weights: as given, or one's own key against the queue (MoCo)."""
        import torch

        n, size = others.shape
        own_key = ~no_self(n, size, others.device).roll(n, dims=1)
        queued = others & (torch.arange(size, device=others.device) >= 2 * n)
        return torch.where(warming, own_key | queued, others), torch.where(warming, own_key.to(weights), weights)

    def pool(self, label: Tensor, state: State) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Return queries, everything that they are contrasted with, and its pseudo-labels (-1: an empty place)."""
        import torch

        query, key = unit(state["features"]), unit(state["momentum_features"])
        return query, (query, key, state["keys"]), torch.cat([label, label, state["key_labels"]])

    def followed(self, label: Tensor, state: State, counted: Tensor | None = None) -> Tensor:
        """Return μ after the batch's embeddings, or those that count, have moved it."""
        return followed(state["prototypes"], label, unit(state["features"]), self.prototype_decay, counted)


@attrs.frozen(kw_only=True)
class Pico(PrototypeEstimator):
    """Targets that follow class prototypes, learned by contrast with a momentum copy of the network.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "pico"
    citation: ClassVar[str] = "Wang et al. (ICLR 2022)"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"target"})

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """L_cls + λ L_cont of every example."""
        contrasted = self.contrasted(top_candidate(logits, candidates), state, state["epoch"] < self.warm_up)
        return target_loss(logits, self._new_target(candidates, state)) + self.weight * contrasted

    def _new_target(self, candidates: Tensor, state: State) -> Tensor:
        nearest = top_candidate(self.affinity(state), candidates)
        return self.moved(state, one_hot(nearest, state["target"]))

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """Move targets and prototypes, and put the batch's keys in place of the oldest."""
        label = top_candidate(logits, candidates)
        return {
            "target": self._new_target(candidates, state),
            "prototypes": self.followed(label, state),
            **enqueued(state, keys=unit(state["momentum_features"]), key_labels=label),
        }


ESTIMATORS: list[type[Estimator]] = [Pico]
