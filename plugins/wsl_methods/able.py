"""Ambiguity-induced contrastive learning.

Xia, Lv, Xu, Geng. Ambiguity-Induced Contrastive Learning for Instance-Dependent Partial Label Learning. IJCAI 2022.

    L = -Σ_j w_j log p_j + λ L_con                   w_j ← p_j / Σ_{k∈s} p_k on s, from the weak view's logits
    L_con of the embedding z_a of example i, over the other embeddings z_b of both views of all of the batch:
        -Σ_b m_ab log exp(z_a·z_b/τ) / Σ_{b'≠a} exp(z_a·z_b'/τ)
        m_ab = w_{i,c} / |A_c|  with c = ŷ(b), if c ∈ s_i, else 0        A_c: the batch's examples whose ŷ is c
        ŷ = argmax_{j∈s} p_j

An ambiguity-induced positive for every candidate label: each candidate draws the example to those that are taken for
it, by as much as that candidate is believed. L_con is the mean over both views' embeddings.

Settled: the authors' code reads w by the example's place in the batch instead of its number in the data set, which
gives it other examples' confidences; here w is the example's own. Confidences move with the logits that the loss was
computed with, as in their code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import (
    AugmentedEstimator,
    contrast,
    no_self,
    projection,
    target_loss,
    top_candidate,
    uniform,
    unit,
)
from wsl_toolkit import Estimator, Kind, Setting, State, param

if TYPE_CHECKING:
    from torch import Tensor, nn


@attrs.frozen(kw_only=True)
class Able(AugmentedEstimator):
    """Confidences on the candidates, and embeddings drawn to those of every candidate by its confidence.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "able"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Xia et al. (IJCAI 2022)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence"})
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "features"})
    stackable: ClassVar[bool] = False

    weight: float = param(1.0, help="λ, the weight of the contrastive loss", ge=0)
    temperature: float = param(0.07, help="τ of the contrastive loss", gt=0)
    width: int = param(128, help="size of an embedding", ge=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put views and a projection head around the network."""
        from wsl_toolkit.networks import Extended

        return Extended(network, self.needs, project=projection(network, self.width), **self.views())

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"confidence": uniform(candidates)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Cross-entropy with the confidences, and the contrastive loss of both of the example's embeddings."""
        import torch

        embeddings = unit(torch.cat([state["features"], state["view_features"]]))
        others = no_self(len(embeddings), len(embeddings), logits.device)
        drawn = self._attraction(logits, candidates, state).repeat(2, 2) * others
        contrasted = contrast(embeddings, [embeddings], others, drawn, self.temperature)
        return target_loss(logits, state["confidence"]) + self.weight * contrasted.view(2, -1).mean(0)

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The mean over a batch, whose examples must be there together, for they are contrasted with each other."""
        return self.loss(logits, candidates, state).mean()

    def _attraction(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """m between the examples of the batch, [B, B]: what the row's example believes of the column's pseudo-label."""
        label = top_candidate(logits.detach(), candidates)
        alike = (label == label.unsqueeze(1)).sum(1)
        return state["confidence"][:, label] / alike

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """w from the weak view's probabilities."""
        return {"confidence": restricted_softmax(logits, candidates)}


ESTIMATORS: list[type[Estimator]] = [Able]
