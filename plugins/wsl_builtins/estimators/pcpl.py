"""Provably consistent partial-label learning: the risk-consistent (RC) and the classifier-consistent (CC) method.

Feng, Lv, Han, Xu, Niu, Geng, An, Sugiyama. Provably Consistent Partial-Label Learning. NeurIPS 2020.

    RC as printed:    1/2 Σ_{j=1..K} p(y=j|x) / (Σ_{k∈s} p(y=k|x)) ℓ_j
    RC as practised:  Σ_{j∈s} r_j ℓ_j
    CC:               -log Σ_{j∈s} p_j
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import BaseLossEstimator, ConfidenceEstimator
from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.losses import log_set_probability, set_loss_and_gradient, softmax

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class RiskConsistentAsPrinted(BaseLossEstimator):
    """RC as printed, ½ Σ_j p̂_j / (Σ_{k∈s} p̂_k) ℓ_j over all K classes: for theory only.

    Unbiased only where Σ_s C(x, s) = 2, as under PCPL. With p̂ from the model its gradient is zero at p̂ = p, whatever
    the candidates say, so it cannot train a network; use `rc`.
    """

    name: ClassVar[str] = "pcpl"
    assumption: ClassVar[Setting] = Setting.PCPL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Feng et al. (NeurIPS 2020); Eq. (4) of Wu, Lv, Sugiyama (2023)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "after"
    trains: ClassVar[bool] = False

    def init_state(self, candidates: Tensor) -> State:
        """p̂ = 1/K for every class; it is needed off the candidates too."""
        import torch

        return {"posterior": torch.full(candidates.shape, 1 / candidates.shape[-1], device=candidates.device)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        posterior = state["posterior"]
        # A model may rule out all candidates at once; the floor keeps the ratio finite and is far below any real p̂.
        inside = (posterior * candidates).sum(-1).clamp(min=torch.finfo(posterior.dtype).eps)
        return (posterior * self.losses(logits)).sum(-1) / (2 * inside)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:

        return {"posterior": softmax(logits.detach())}

    def target_loss(self, logits: Tensor) -> Tensor:
        """ℓ itself: singletons alone are not PCPL, so what the loss becomes on them says nothing."""
        return self.losses(logits)


@attrs.frozen(kw_only=True)
class RiskConsistent(ConfidenceEstimator):
    """RC as practised, Σ_{j∈s} r_j ℓ_j with confidences refreshed after each step: the same as `ppl`."""

    name: ClassVar[str] = "rc"
    assumption: ClassVar[Setting] = Setting.PPL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Feng et al. (NeurIPS 2020)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "after"


@attrs.frozen(kw_only=True)
class ClassifierConsistent(Estimator):
    """Negative log-likelihood of the candidate set, -log Σ_{j∈s} p_j.

    C(x, s) does not depend on the model, so it is left out: this is the likelihood of every proper setting, not
    only of PCPL. Its gradient is that of `ppl` with confidences fresh from the same logits. The likelihood finds
    p(y|x) only where the law of the sets tells classes apart: under a single `partition` every p with the right sums
    over the blocks is as likely as the true one, so p(y|x) is not identified, whatever is minimised.
    """

    name: ClassVar[str] = "cc"
    assumption: ClassVar[Setting] = Setting.PPL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Feng et al. (NeurIPS 2020)"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return -log_set_probability(logits, candidates)

    @property
    def has_gradient(self) -> bool:
        """It is p - r, with p restricted to the candidates as r."""
        return True

    def loss_and_gradient(self, logits: Tensor, candidates: Tensor, state: State) -> tuple[Tensor, Tensor]:
        return set_loss_and_gradient(logits, candidates)
