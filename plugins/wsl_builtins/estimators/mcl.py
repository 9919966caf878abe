"""Learning with multiple complementary labels: the unbiased estimator and its bounded or bounding relatives.

Feng, Kaneko, Han, Niu, An, Sugiyama. Learning with Multiple Complementary Labels. ICML 2020.

    URE:      Σ_{j∈s} ℓ_j - (K-1-|s̄|)/|s̄| Σ_{j∈s̄} ℓ_j
    ℓ = MAE:  (K-1)/|s̄| (1 - Σ_{j∈s} p_j), and its upper bounds with -log z and e^{-z} in place of 1 - z
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import BaseLossEstimator
from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.losses import log_set_probability, mae

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class MultipleComplementary(BaseLossEstimator):
    """Unbiased risk from multiple complementary labels, Σ_{j∈s} ℓ_j - (K-1-|s̄|)/|s̄| Σ_{j∈s̄} ℓ_j.

    Unbounded from below with an unbounded ℓ such as cross-entropy, so networks overfit it; bounded losses do not.
    A full set weighs nothing.
    """

    name: ClassVar[str] = "mcl"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Feng et al. (ICML 2020); Section 2 of Wu, Lv, Sugiyama (2023)"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        losses = self.losses(logits)
        inside, outside = candidates.to(losses.dtype), (~candidates).to(losses.dtype)
        excluded = outside.sum(-1)
        factor = (candidates.shape[-1] - 1 - excluded) / excluded.clamp(min=1)
        return ((inside * losses).sum(-1) - factor * (outside * losses).sum(-1)) * (excluded > 0)


@attrs.frozen(kw_only=True)
class ComplementaryBound(Estimator):
    """(K-1)/|s̄| φ(Σ_{j∈s} p_j) for a decreasing φ; a full set weighs nothing."""

    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.UPPER_BOUND
    citation: ClassVar[str] = "Feng et al. (ICML 2020)"

    @abstractmethod
    def phi(self, log_z: Tensor) -> Tensor:
        """Return φ(z), given log z."""

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        log_z = log_set_probability(logits, candidates)
        excluded = (~candidates).sum(-1).to(log_z.dtype)
        return (candidates.shape[-1] - 1) / excluded.clamp(min=1) * self.phi(log_z) * (excluded > 0)

    def target_loss(self, logits: Tensor) -> Tensor:
        """MAE: its unbiased estimator is φ(z) = 1 - z, which the other φ bound from above."""
        return mae(logits)


@attrs.frozen(kw_only=True)
class MclLog(ComplementaryBound):
    """Upper bound (K-1)/|s̄| · -log Σ_{j∈s} p_j of the MAE risk: the paper's MCL baseline.

    Within one size of set it is the likelihood of the set, so under MCL its minimiser is p(y|x) itself.
    """

    name: ClassVar[str] = "mcl-log"

    def phi(self, log_z: Tensor) -> Tensor:
        return -log_z


@attrs.frozen(kw_only=True)
class MclExp(ComplementaryBound):
    """Upper bound (K-1)/|s̄| · exp(-Σ_{j∈s} p_j) of the MAE risk."""

    name: ClassVar[str] = "mcl-exp"

    def phi(self, log_z: Tensor) -> Tensor:
        import torch

        return torch.exp(-torch.exp(log_z))


@attrs.frozen(kw_only=True)
class MclMae(ComplementaryBound):
    """The MCL estimator with ℓ = 1 - p_y in one term, (K-1)/|s̄| · (1 - Σ_{j∈s} p_j): unbiased and bounded."""

    name: ClassVar[str] = "mcl-mae"
    kind: ClassVar[Kind] = Kind.UNBIASED

    def phi(self, log_z: Tensor) -> Tensor:
        import torch

        return -torch.expm1(log_z)
