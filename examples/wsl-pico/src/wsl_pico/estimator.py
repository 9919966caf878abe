"""Contrastive label disambiguation, in a small version that shows what an estimator may ask for.

Wang, Xiao, Li, Feng, Niu, Chen, Zhao. PiCO: Contrastive Label Disambiguation for Partial Label Learning. ICLR 2022.

    L = L_cls + λ L_cont
    L_cls  = -Σ_j t_j log p_j                                            t: the example's target, kept between visits
    L_cont = -1/|P| Σ_{k ∈ P} log exp(q·k/τ) / Σ_{k' ∈ A} exp(q·k'/τ)     A: embeddings of both views and of the queue,
                                                                         P: those with the same pseudo-label
    μ_c <- normalise(γ μ_c + (1-γ) q)     for the q whose pseudo-label, argmax_{j∈s} p_j, is c
    t   <- φ t + (1-φ) e_c                with c = argmax_{j∈s} q·μ_j
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_toolkit import Estimator, Kind, Setting, State, param

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class Pico(Estimator):
    """PiCO in small: targets that follow class prototypes, learned by contrast with a momentum copy of the network."""

    name: ClassVar[str] = "pico-lite"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Wang et al. (ICLR 2022)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"target"})
    needs: ClassVar[frozenset[str]] = frozenset({"second_view", "features", "momentum", "epoch"})
    stackable: ClassVar[bool] = False

    weight: float = param(0.5, help="λ, the weight of the contrastive loss", ge=0)
    temperature: float = param(0.07, help="τ of the contrastive loss", gt=0)
    prototype_decay: float = param(0.99, help="γ: how slowly prototypes follow", ge=0, lt=1)
    network_decay: float = param(0.999, help="how slowly the copy of the network follows", ge=0, lt=1)
    target_decay: tuple[float, ...] = param((0.95, 0.8), help="φ at the start and at the end of the ramp", ge=0, le=1)
    ramp: int = param(800, help="epochs over which φ goes from its first to its second value", ge=1)
    warm_up: int = param(1, help="epochs before targets and positives follow the pseudo-labels", ge=0)
    queue: int = param(8192, help="embeddings that are kept to contrast with", ge=1)
    width: int = param(128, help="size of an embedding", ge=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put a projection head on the network's features."""
        from torch import nn

        from wsl_toolkit.networks import Extended, classifier

        features = classifier(network).in_features
        head = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, self.width))
        return Extended(network, self.needs, project=head, decay=self.network_decay)

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"target": candidates / candidates.sum(-1, keepdim=True)}

    def init_shared(self, candidates: CandidateSets) -> State:
        """No prototypes, an empty queue (label -1), its first place next."""
        import torch

        return {
            "prototypes": torch.zeros(candidates.num_classes, self.width),
            "keys": torch.zeros(self.queue, self.width),
            "key_labels": torch.full((self.queue,), -1),
            "place": torch.zeros((), dtype=torch.int64),
        }

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """L_cls + λ L_cont of every example."""
        import torch

        target = self._new_target(candidates, state)
        classification = -(target * torch.log_softmax(logits, dim=-1)).sum(-1)
        return classification + self.weight * self._contrast(pseudo_label(logits, candidates), state)

    def _new_target(self, candidates: Tensor, state: State) -> Tensor:
        """t <- φ t + (1-φ) e_c once the warm-up is over."""
        import torch

        affinity = unit(state["features"].detach()) @ state["prototypes"].T
        nearest = torch.nn.functional.one_hot(pseudo_label(affinity, candidates), candidates.shape[-1])
        first, last = self.target_decay
        behind = (state["epoch"] - 1).clamp(min=0)  # the authors set φ at the end of an epoch, for the next one
        decay = first + (last - first) * (behind / self.ramp).clamp(max=1)
        moved = decay * state["target"] + (1 - decay) * nearest
        return torch.where(state["epoch"] < self.warm_up, state["target"], moved)

    def _contrast(self, label: Tensor, state: State) -> Tensor:
        import torch

        query, key = unit(state["features"]), unit(state["momentum_features"])
        n = len(query)
        pool = torch.cat([query, key, state["keys"]])
        labels = torch.cat([label, label, state["key_labels"]])
        itself = torch.arange(len(pool), device=query.device) == torch.arange(n, device=query.device).unsqueeze(1)
        own_key = itself.roll(n, dims=1)
        same_label = (labels == label.unsqueeze(1)) & ~itself
        # In the warm-up labels mean nothing: the positive is the other view, and the rest of the batch is left out.
        warming = state["epoch"] < self.warm_up
        batch = torch.arange(len(pool), device=query.device) < 2 * n
        others = torch.where(warming, ~batch | own_key, ~itself) & (labels >= 0)
        positives = torch.where(warming, own_key, same_label)
        similarity = (query @ pool.T / self.temperature).masked_fill(~others, -torch.inf)
        log_probability = torch.log_softmax(similarity, dim=-1).masked_fill(~positives, 0.0)
        return -log_probability.sum(-1) / positives.sum(-1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """Move targets and prototypes, and put the batch's keys in place of the oldest."""
        import torch

        label = pseudo_label(logits, candidates)
        places = (state["place"] + torch.arange(len(label), device=label.device)) % self.queue
        return {
            "target": self._new_target(candidates, state),
            "prototypes": self._new_prototypes(label, state),
            "keys": state["keys"].index_copy(0, places, unit(state["momentum_features"])),
            "key_labels": state["key_labels"].index_copy(0, places, label),
            "place": (state["place"] + len(label)) % self.queue,
        }

    def _new_prototypes(self, label: Tensor, state: State) -> Tensor:
        """Apply μ <- γ μ + (1-γ) q for one q after another: the i-th of n has weight (1-γ) γ^(n-i)."""
        import torch

        members = torch.nn.functional.one_hot(label, len(state["prototypes"])).to(state["prototypes"].dtype)
        later = members.flip(0).cumsum(0).flip(0) - members
        weights = members * (1 - self.prototype_decay) * self.prototype_decay**later
        kept = self.prototype_decay ** members.sum(0).unsqueeze(1)
        return unit(kept * state["prototypes"] + weights.T @ unit(state["features"]))


def pseudo_label(scores: Tensor, candidates: Tensor) -> Tensor:
    """Return the candidate with the highest score."""
    import torch

    return scores.masked_fill(~candidates, -torch.inf).argmax(-1)


def unit(vectors: Tensor) -> Tensor:
    """Return vectors of length one; a zero stays zero."""
    import torch

    return torch.nn.functional.normalize(vectors, dim=-1)
