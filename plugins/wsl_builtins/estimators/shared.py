"""What several estimators share: a choice of multi-class loss, confidences over candidates, the mean over s̄."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Estimator, State, param
from wsl_toolkit.losses import (
    GCE_Q,
    MULTICLASS_LOSSES,
    PHUBER_TAU,
    confined,
    cross_entropy_and_gradient,
    lifted,
    softmax,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class BaseLossEstimator(Estimator):
    """An estimator of the risk of a multi-class loss that the user chooses."""

    base_loss: str = param(
        "cross-entropy", help="the multi-class loss ℓ whose risk is estimated", choices=tuple(MULTICLASS_LOSSES)
    )
    gce_q: float = param(GCE_Q, help="exponent q of the gce loss; near 0 is cross-entropy, 1 is mae", gt=0, le=1)
    phuber_tau: float = param(PHUBER_TAU, help="threshold τ of the phuber-ce loss: linear where p ≤ 1/τ", gt=1)

    def losses(self, logits: Tensor) -> Tensor:
        """Return ℓ_j for every class j, [..., K]."""
        options = {"gce": {"q": self.gce_q}, "phuber-ce": {"tau": self.phuber_tau}}
        return MULTICLASS_LOSSES[self.base_loss](logits, **options.get(self.base_loss, {}))


@attrs.frozen(kw_only=True)
class WeightedLossEstimator(BaseLossEstimator):
    """Σ_j w_j ℓ_j, where the weights of the classes do not depend on the logits."""

    @abstractmethod
    def class_weights(self, candidates: Tensor, state: State, dtype: torch.dtype) -> Tensor:
        """Return w_j for every class j, [..., K]."""

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        losses = self.losses(logits)
        return (self.class_weights(candidates, state, losses.dtype) * losses).sum(-1)

    @property
    def has_gradient(self) -> bool:
        """That of the cross-entropy is written out."""
        return self.base_loss == "cross-entropy"

    def loss_and_gradient(self, logits: Tensor, candidates: Tensor, state: State) -> tuple[Tensor, Tensor]:
        logits = lifted(logits)
        return cross_entropy_and_gradient(logits, self.class_weights(candidates, state, logits.dtype))


@attrs.frozen(kw_only=True)
class MeanEstimator(WeightedLossEstimator):
    """1/|s| Σ_{j∈s} ℓ_j."""

    def class_weights(self, candidates: Tensor, state: State, dtype: torch.dtype) -> Tensor:
        inside = candidates.to(dtype)
        return inside / inside.sum(-1, keepdim=True)


@attrs.frozen(kw_only=True)
class ConfidenceEstimator(WeightedLossEstimator):
    """Σ_{j∈s} r_j ℓ_j with confidences r that are kept for each example and follow the model."""

    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence"})

    def init_state(self, candidates: Tensor) -> State:
        """p̂ = 1/K, so r = 1/|s| on the candidates."""
        return {"confidence": candidates / candidates.sum(-1, keepdim=True)}

    def class_weights(self, candidates: Tensor, state: State, dtype: torch.dtype) -> Tensor:
        return state["confidence"]

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r_j = p_j / Σ_{k∈s} p_k on the candidates (Theorem 1 of Wu, Lv and Sugiyama, with the softmax as p)."""
        return {"confidence": restricted_softmax(logits, candidates)}


def restricted_softmax(logits: Tensor, members: Tensor) -> Tensor:
    """Return p_j / Σ_{k∈members} p_k on `members` [..., K] and 0 off them (all 0 if there are none); a constant."""
    # Confidences are targets, not functions of the weights: attached to the graph they would be trained too.
    logits = lifted(logits.detach())
    inside = members.to(logits.dtype)
    return softmax(confined(logits, inside)).mul_(inside)


def complement_mean(values: Tensor, candidates: Tensor) -> Tensor:
    """Return the mean of `values` [..., K] over s̄, [...]; a full set has no s̄, weighs nothing and gives 0."""
    return (complement_weights(candidates, values.dtype) * values).sum(-1)


def complement_weights(candidates: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 1/|s̄| on s̄ and 0 on s, [..., K]."""
    outside = (~candidates).to(dtype)
    return outside / outside.sum(-1, keepdim=True).clamp(min=1)
