"""Embeddings of an example as each class sees it, for candidate sets that depend on the example.

Yang, Cheng, Jia, Liu, Dong, Hou. Mixed Blessing: Class-Wise Embedding Guided Instance-Dependent Partial Label Learning.
KDD 2025 (CEL).

    h_j: the embedding of x for class j, of length one;  c: the likeliest candidate in the weak view
    L = Σ_v (CE(r, p^v) + α A(h^v) + β P(h^v))                           v: a weak and a strong view
    A = 1 - mean of h_a·h_b over a ≠ b, both in s
          + γ₁ mean of |h_a·h_b| over pairs of which one is in s;   a mean over no pairs is 0
    P = 1 - h_c·μ_c + γ₂ mean_{k≠c} |h_c·μ_k|                            from epoch `prototypes_from` on
    r   ← p normalised on s, of the weak view, from the logits that the loss was computed with
    μ_c ← normalise(μ_c + Σ h_c) over the batch's examples of likeliest candidate c

r begins as 1/|s| on the candidates, and μ as 0.

Read in the authors' code, and in that of Fuchs and Klein's comparison. Settled as in the latter: the backbone's own
logits, and h as a linear layer of its features, 32 numbers for each class, where the authors put a transformer's
decoder on the map of a convolutional network, which tables and other backbones do not have; c is the likeliest
candidate, where the authors multiply logits by the mask, so that a non-candidate wins where all candidates' logits are
negative. Settled here: μ as written above; both codes, by an index that is wrong, give all classes of a batch the
same one. P sees μ from before the batch, theirs from after it. α, β and γ are the defaults of the authors' code, whose
training loop calls α and β by names that are not defined; they search all four for each data set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import AugmentedEstimator, target_loss, top_candidate, uniform, unit
from wsl_toolkit import Estimator, Kind, Setting, State, param

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class ClassWiseEmbeddings(AugmentedEstimator):
    """Confidences, and an embedding for each class: those of candidates are alike, and unlike those of other labels.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "cel"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Yang et al. (KDD 2025)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence"})
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "features", "epoch"})
    stackable: ClassVar[bool] = False

    association: float = param(0.5, help="α, the weight of the likeness of candidates' embeddings", ge=0)
    association_contrast: float = param(1.0, help="γ₁: how much unlikeness to other labels' counts", ge=0)
    prototype: float = param(0.5, help="β, the weight of the prototypes", ge=0)
    prototype_contrast: float = param(1.0, help="γ₂: how much unlikeness to other classes' prototypes counts", ge=0)
    prototypes_from: int = param(250, help="epochs before prototypes count", ge=0)
    width: int = param(32, help="size of an embedding", ge=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put the views and the layer of embeddings around the network."""
        from torch import nn

        from wsl_toolkit.networks import Extended, classifier

        last = classifier(network)
        head = nn.Linear(last.in_features, last.out_features * self.width)
        return Extended(network, self.needs, project=head, **self.views())

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"confidence": uniform(candidates)}

    def init_shared(self, candidates: CandidateSets) -> State:
        """No prototypes yet."""
        import torch

        return {"prototypes": torch.zeros(candidates.num_classes, self.width)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The sum over both views, of every example."""
        import torch

        label = top_candidate(logits, candidates)
        later = self.prototype * (state["epoch"] >= self.prototypes_from).to(logits.dtype)
        total = torch.zeros_like(logits[:, 0])
        for own, seen in ((logits, "features"), (state["view_logits"], "view_features")):
            embeddings = self._embeddings(state[seen], candidates)
            total = total + target_loss(own, state["confidence"])
            total = total + self.association * self._association(embeddings, candidates)
            total = total + later * self._prototypes(embeddings, label, state["prototypes"])
        return total

    def _embeddings(self, features: Tensor, candidates: Tensor) -> Tensor:
        """h, [B, K, width]."""
        return unit(features.view(*candidates.shape, self.width))

    def _association(self, embeddings: Tensor, candidates: Tensor) -> Tensor:
        """A of each example; sums over pairs as products with the mask, for there are K² pairs."""
        inside = candidates.to(embeddings.dtype)
        outside, size = 1 - inside, inside.sum(-1)
        together = (embeddings * inside.unsqueeze(-1)).sum(-2).square().sum(-1)
        alone = (embeddings.square().sum(-1) * inside).sum(-1)
        alike = (together - alone) / (size * (size - 1)).clamp(min=1)
        near = (embeddings @ embeddings.mT).abs()
        across = ((near @ outside.unsqueeze(-1)).squeeze(-1) * inside).sum(-1)
        return 1 - alike + self.association_contrast * across / (size * outside.sum(-1)).clamp(min=1)

    def _prototypes(self, embeddings: Tensor, label: Tensor, prototypes: Tensor) -> Tensor:
        """P of each example."""
        import torch

        near = of_label(embeddings, label) @ prototypes.to(embeddings.dtype).T
        own = torch.nn.functional.one_hot(label, near.shape[-1]).bool()
        others = near.abs().masked_fill(own, 0.0).sum(-1) / (near.shape[-1] - 1)
        return 1 - near.gather(1, label.unsqueeze(1)).squeeze(1) + self.prototype_contrast * others

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r from the weak view, and prototypes that take up the embeddings of its likeliest candidates."""
        old, label = state["prototypes"], top_candidate(logits, candidates)
        seen = of_label(self._embeddings(state["features"], candidates), label)
        moved = unit(old.index_add(0, label, seen.to(old.dtype)))
        return {"confidence": restricted_softmax(logits, candidates), "prototypes": moved}


def of_label(embeddings: Tensor, label: Tensor) -> Tensor:
    """Return each example's embedding for its label, [B, width]."""
    import torch

    return embeddings[torch.arange(len(label), device=label.device), label]


ESTIMATORS: list[type[Estimator]] = [ClassWiseEmbeddings]
