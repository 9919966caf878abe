"""Learning with multiple complementary labels: the unbiased estimator and its bounded or bounding relatives.

Feng, Kaneko, Han, Niu, An, Sugiyama. Learning with Multiple Complementary Labels. ICML 2020.

    URE:      Σ_{j∈s} ℓ_j - (K-1-|s̄|)/|s̄| Σ_{j∈s̄} ℓ_j
    ℓ = MAE:  (K-1)/|s̄| (1 - Σ_{j∈s} p_j), and its upper bounds with -log z and e^{-z} in place of 1 - z
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import WeightedLossEstimator
from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.losses import log_set_probability, mae, set_loss_and_gradient

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class MultipleComplementary(WeightedLossEstimator):
    """Unbiased risk from multiple complementary labels, Σ_{j∈s} ℓ_j - (K-1-|s̄|)/|s̄| Σ_{j∈s̄} ℓ_j.

    Unbounded from below with an unbounded ℓ such as cross-entropy, so networks overfit it; bounded losses do not.
    A full set weighs nothing.
    """

    name: ClassVar[str] = "mcl"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Feng et al. (ICML 2020); Section 2 of Wu, Lv, Sugiyama (2023)"

    def class_weights(self, candidates: Tensor, state: State, dtype: torch.dtype) -> Tensor:
        inside, outside = candidates.to(dtype), (~candidates).to(dtype)
        excluded = outside.sum(-1, keepdim=True)
        factor = (candidates.shape[-1] - 1 - excluded) / excluded.clamp(min=1)
        return (inside - factor * outside) * (excluded > 0)


@attrs.frozen(kw_only=True)
class ComplementaryBound(Estimator):
    """(K-1)/|s̄| φ(Σ_{j∈s} p_j) for a decreasing φ; a full set weighs nothing."""

    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.UPPER_BOUND
    citation: ClassVar[str] = "Feng et al. (ICML 2020)"

    @abstractmethod
    def phi(self, log_z: Tensor) -> Tensor:
        """Return φ(z), given log z."""

    @abstractmethod
    def fall(self, log_z: Tensor) -> Tensor:
        """Return -dφ(z)/d log z, given log z."""

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        log_z = log_set_probability(logits, candidates)
        return _per_excluded(candidates, log_z.dtype) * self.phi(log_z)

    @property
    def has_gradient(self) -> bool:
        """That of φ(Σ_{j∈s} p_j) is written out."""
        return True

    def loss_and_gradient(self, logits: Tensor, candidates: Tensor, state: State) -> tuple[Tensor, Tensor]:
        minus_log_z, slopes = set_loss_and_gradient(logits, candidates)
        factor = _per_excluded(candidates, slopes.dtype)
        return factor * self.phi(-minus_log_z), (factor * self.fall(-minus_log_z)).unsqueeze(-1) * slopes

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

    def fall(self, log_z: Tensor) -> Tensor:
        import torch

        return torch.ones_like(log_z)


@attrs.frozen(kw_only=True)
class MclExp(ComplementaryBound):
    """Upper bound (K-1)/|s̄| · exp(-Σ_{j∈s} p_j) of the MAE risk."""

    name: ClassVar[str] = "mcl-exp"

    def phi(self, log_z: Tensor) -> Tensor:
        import torch

        return torch.exp(-torch.exp(log_z))

    def fall(self, log_z: Tensor) -> Tensor:
        import torch

        z = torch.exp(log_z)
        return z * torch.exp(-z)


@attrs.frozen(kw_only=True)
class MclMae(ComplementaryBound):
    """The MCL estimator with ℓ = 1 - p_y in one term, (K-1)/|s̄| · (1 - Σ_{j∈s} p_j): unbiased and bounded."""

    name: ClassVar[str] = "mcl-mae"
    kind: ClassVar[Kind] = Kind.UNBIASED

    def phi(self, log_z: Tensor) -> Tensor:
        import torch

        return -torch.expm1(log_z)

    def fall(self, log_z: Tensor) -> Tensor:
        import torch

        return torch.exp(log_z)


def _per_excluded(candidates: Tensor, dtype: torch.dtype) -> Tensor:
    """Return (K-1)/|s̄|, [...]; 0 for a full set."""
    excluded = (~candidates).sum(-1).to(dtype)
    return (candidates.shape[-1] - 1) / excluded.clamp(min=1) * (excluded > 0)
