"""Leveraged weighted loss: candidates pull up, non-candidates push down, each weighted by its confidence.

Wen, Cui, Hang, Liu, Wang, Lin. Leveraged Weighted Loss for Partial Label Learning. ICML 2021.

    w0 Σ_{j∈s} r_j ψ(f_j) + w Σ_{j∉s} r_j ψ(-f_j)
    sigmoid:        ψ(z) = σ(-z)
    cross-entropy:  -log p_j on s, -log(1 - p_j) off s
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import (
    cross_entropy_and_gradient,
    for_and_against_and_gradient,
    lifted,
    log_complement,
    log_softmax,
)

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class LeveragedWeighted(Estimator):
    """Leveraged weighted loss with confidences on candidates and, apart from them, on non-candidates.

    No promise holds for all its parameters. With the true confidences and cross-entropy its minimiser finds the right
    class under MCL at the leverages that its authors try, but not at large ones; with the sigmoid loss there is none.
    """

    name: ClassVar[str] = "lw"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Wen et al. (ICML 2021)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "after"

    base_loss: str = param(
        "cross-entropy",
        help="the paper's best, or the binary sigmoid loss on each logit",
        choices=("cross-entropy", "sigmoid"),
    )
    leverage: float = param(1.0, help="w, the weight of the non-candidates' term; its authors try 0, 1 and 2", ge=0)
    candidate_weight: float = param(1.0, help="w0, the weight of the candidates' term", ge=0)

    def init_state(self, candidates: Tensor) -> State:
        """r = 1/K everywhere; it is needed off the candidates too, or the second term would vanish."""
        import torch

        return {"weight": torch.full(candidates.shape, 1 / candidates.shape[-1], device=candidates.device)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        logits = lifted(logits)
        rising, falling = self._weights(candidates, state)
        if self.base_loss == "sigmoid":
            return (rising * torch.sigmoid(-logits) + falling * torch.sigmoid(logits)).sum(-1)
        log_p = log_softmax(logits)
        return -(rising * log_p + falling * log_complement(log_p)).sum(-1)

    @property
    def has_gradient(self) -> bool:
        """Those of both losses are written out."""
        return True

    def loss_and_gradient(self, logits: Tensor, candidates: Tensor, state: State) -> tuple[Tensor, Tensor]:
        import torch

        rising, falling = self._weights(candidates, state)
        if self.base_loss == "cross-entropy" and self.leverage == 0:
            return cross_entropy_and_gradient(logits, rising)
        if self.base_loss == "cross-entropy":
            return for_and_against_and_gradient(logits, rising, falling)
        up = torch.sigmoid(lifted(logits))
        down = torch.sigmoid(-lifted(logits))
        return (rising * down + falling * up).sum(-1), (falling - rising).mul_(up).mul_(down)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """p renormalised on s and, separately, on s̄."""
        return {"weight": restricted_softmax(logits, candidates) + restricted_softmax(logits, ~candidates)}

    def _weights(self, candidates: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Return what weighs each class as a candidate and as a non-candidate, [..., K] each."""
        weight = state["weight"]
        rising = weight * candidates.to(weight.dtype)  # a product: a choice by a random mask makes processors guess
        return self.candidate_weight * rising, self.leverage * (weight - rising)
