"""Distilling reliable knowledge.

Wu, Wang, Zhang. Distilling Reliable Knowledge for Instance-Dependent Partial Label Learning. AAAI 2024.

A teacher, the momentum copy of the student, gives targets that are rectified so that no label off the set is likelier
than one on it, and whose similarity says which embeddings belong together:

    L = -Σ_j r_j log p_j + λ L_ref
    r = a u + (1-a) v            u, v: the teacher's probabilities normalised on s and off s
    a = M max_j v_j / (M max_j v_j + min_{j∈s} u_j),   M = 1 / Σ_{j∈s} p^T_j
    L_ref = -Σ_{k∈P} w_k log exp(z·k/τ) / Σ_{k'∈A} exp(z·k'/τ)      w_k = softmax over P of cos(r, r_k)/τ_r

z are the student's embeddings of strong views; A holds the batch's other z, the teacher's embeddings of weak views and
a queue of those; P those of A whose sets share a label with s and whose r is largest at the same one. In the first
epoch P is the teacher's embedding of the example and A that and the queue (MoCo). Both networks classify a third view.

Settled as in the authors' code; their teacher starts from other weights than the student, here from the same. Places
of the queue that nothing has filled yet are left out, where theirs hold random vectors; there are no more places than
examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import (
    AugmentedEstimator,
    contrast,
    empty_queue,
    enqueued,
    no_self,
    projection,
    target_loss,
    unit,
)
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import log_set_probability

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class Dirk(AugmentedEstimator):
    """Self-distillation with targets rectified by the candidate set, which also refine the embeddings.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "dirk"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Wu et al. (AAAI 2024)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "features", "momentum", "momentum_view", "epoch"})
    stackable: ClassVar[bool] = False
    contract: ClassVar[dict[str, Any]] = {"epochs": 30}  # soft targets from a teacher that follows slowly

    weight: float = param(1.0, help="λ, the weight of the refinement of embeddings", ge=0)
    temperature: float = param(0.07, help="τ between embeddings", gt=0)
    target_temperature: float = param(0.4, help="τ_r between targets", gt=0)
    network_decay: float = param(0.99, help="how slowly the teacher follows the student", ge=0, lt=1)
    warm_up: int = param(1, help="epochs before targets say which embeddings belong together", ge=0)
    queue: int = param(4096, help="embeddings that are kept to contrast with, at most one an example", ge=1)
    width: int = param(128, help="size of an embedding", ge=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put views, a projection head and the teacher around the network."""
        from wsl_methods.modules import Distilled

        head = projection(network, self.width)
        return Distilled(network, self.needs, project=head, decay=self.network_decay, **self.views())

    def init_shared(self, candidates: CandidateSets) -> State:
        """An empty queue, whose sets are empty."""
        import torch

        zeros = torch.zeros(candidates.num_classes)
        keys = torch.zeros(self.width)
        return empty_queue(self.queue, len(candidates), keys=keys, key_targets=zeros, key_sets=zeros.bool())

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Both losses of every example."""
        target = rectified(state["momentum_logits"], candidates)
        return target_loss(logits, target) + self.weight * self._refinement(target, candidates, state)

    def _refinement(self, target: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        query, n = unit(state["features"]), len(target)
        pool = (query, unit(state["momentum_features"]), state["keys"])
        targets = torch.cat([target, target, state["key_targets"]])
        sets = torch.cat([candidates, candidates, state["key_sets"]])
        device = query.device
        others = no_self(n, len(sets), device) & sets.any(1)
        share = candidates.to(query.dtype) @ sets.T.to(query.dtype) > 0
        belong = others & share & (targets.argmax(1) == target.argmax(1).unsqueeze(1))
        # In the warm-up the only positive is the teacher's view of the example, and the batch is left out.
        own = ~no_self(n, len(sets), device).roll(n, dims=1)
        queued = torch.arange(len(sets), device=device) >= 2 * n
        warming = state["epoch"] < self.warm_up
        others = torch.where(warming, own | (others & queued), others)
        belong = torch.where(warming, own, belong)
        similar = (unit(target) @ unit(targets).T / self.target_temperature).masked_fill(~belong, -torch.inf)
        return contrast(query, pool, others, torch.softmax(similar, dim=-1), self.temperature)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """Put the teacher's embeddings, with targets and sets, in place of the oldest."""
        target = rectified(state["momentum_logits"], candidates)
        keys = unit(state["momentum_features"])
        return enqueued(state, keys=keys, key_targets=target, key_sets=candidates)


def rectified(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return r of every example, [B, K], a constant; r = u where nothing is off the set."""
    import torch

    logits = logits.detach()
    inside, outside = restricted_softmax(logits, candidates), restricted_softmax(logits, ~candidates)
    # a as a sigmoid of a difference of logarithms, none of which is of a probability that has vanished.
    log_p = torch.log_softmax(logits, dim=-1)
    on = log_set_probability(logits, candidates)
    weakest = log_p.masked_fill(~candidates, torch.inf).amin(-1) - on
    strongest = outside.amax(-1).log()
    share = torch.sigmoid(strongest - on - weakest).unsqueeze(1)
    share = torch.where(candidates.all(-1, keepdim=True), torch.ones_like(share), share)
    return share * inside + (1 - share) * outside


ESTIMATORS: list[type[Estimator]] = [Dirk]
