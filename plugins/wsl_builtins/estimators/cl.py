"""Complementary-label learning for arbitrary losses: the unbiased estimator and its two corrections.

Ishida, Niu, Menon, Sugiyama. Complementary-Label Learning for Arbitrary Losses and Models. ICML 2019.

    URE:   Σ_{k≠ȳ} ℓ_k - (K-2) ℓ_ȳ   =   Σ_k ℓ_k - (K-1) ℓ_ȳ
    class-wise:  L_j = Σ_k π̄_k E_{ȳ=k}[ℓ_j] - (K-1) π̄_j E_{ȳ=j}[ℓ_j],   R = Σ_j L_j,   L_j ≥ 0 in expectation

Where |s̄| > 1 all of them average over the labels of s̄, which turns the URE into that of `mcl`.
A full set weighs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import WeightedLossEstimator, complement_weights
from wsl_toolkit import Kind, Setting, State, param

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class Complementary(WeightedLossEstimator):
    """Unbiased risk from a complementary label ("free"), Σ_{k≠ȳ} ℓ_k - (K-2) ℓ_ȳ, averaged over s̄.

    Unbounded from below with an unbounded ℓ such as cross-entropy, so networks overfit it: see `cl-nn` and `cl-ga`.
    """

    name: ClassVar[str] = "cl"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Ishida et al. (ICML 2019); Section 2 of Wu, Lv, Sugiyama (2023)"

    def class_weights(self, candidates: Tensor, state: State, dtype: torch.dtype) -> Tensor:
        weights = complement_weights(candidates, dtype)
        return weights.sum(-1, keepdim=True) - (candidates.shape[-1] - 1) * weights


@attrs.frozen(kw_only=True)
class ClassWise(Complementary):
    """What the two corrections share: the risk split by class, on a batch."""

    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Ishida et al. (ICML 2019)"

    def init_shared(self, candidates: CandidateSets) -> State:
        """π̄: how often each class is a complementary label in the training set."""
        import torch

        total = torch.zeros(candidates.num_classes, dtype=torch.float64, device=candidates.sizes.device)
        step = max(1, 2**24 // candidates.num_classes)
        for start in range(0, len(candidates), step):
            mask = candidates.mask(slice(start, start + step))
            total += complement_weights(mask, torch.float64).sum(0)
        return {"prior": (total / total.sum().clamp(min=1)).float()}

    def partial_risks(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Return L_j of the batch for every class j, [..., K]; a ȳ that the batch lacks contributes nothing."""
        losses = self.losses(logits)  # [..., B, K]
        weights = complement_weights(candidates, losses.dtype)  # how much example i speaks for ȳ = k
        counts = weights.sum(-2, keepdim=True)
        # π̄_k / n_k, so that Σ_i weights_ik share_k (…) is π̄_k times the batch's mean given ȳ = k.
        share = state["prior"] * (counts > 0) / counts.clamp(min=1e-12)
        weighted = weights * share
        everywhere = (weighted.sum(-1, keepdim=True) * losses).sum(-2)
        return everywhere - (losses.shape[-1] - 1) * (weighted * losses).sum(-2)


@attrs.frozen(kw_only=True)
class NonNegative(ClassWise):
    """Non-negative correction of `cl`: Σ_j max(L_j, 0) over the class-wise risks of a batch.

    Biased upwards on a batch, and consistent: in large batches no L_j is negative and it is the URE.
    """

    name: ClassVar[str] = "cl-nn"

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return self.partial_risks(logits, candidates, state).clamp(min=0).sum(-1)


@attrs.frozen(kw_only=True)
class GradientAscent(ClassWise):
    """Gradient ascent for `cl`: where some class-wise risk is negative, a step that raises the negative ones.

    The value reported is the risk Σ_j L_j; only its gradient is exchanged, for that of -Σ_j min(L_j, 0). The code that
    was published with the paper weighs min(L_j, 0) by how often j is a complementary label in the batch, so that it
    takes much larger steps upwards than downwards: `weights` = count.
    """

    name: ClassVar[str] = "cl-ga"

    weights: str = param(
        "equal",
        help="of the negative risks: equal, as printed, or count, how often the class is a complementary label in the "
        "batch, as released",
        choices=("equal", "count"),
    )

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        risks = self.partial_risks(logits, candidates, state)
        if self.weights == "equal":
            return ascended(risks)
        return ascended(risks, complement_weights(candidates, risks.dtype).sum(-2))


def ascended(risks: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return Σ_j L_j with the gradient of -Σ_j w_j min(L_j, 0) where some w_j L_j is negative; w_j = 1 if not given."""
    import torch

    total = risks.sum(-1)
    weighed = risks if weights is None else risks * weights
    step = torch.where(weighed.amin(-1) < 0, -weighed.clamp(max=0).sum(-1), total)
    return total.detach() + (step - step.detach())
