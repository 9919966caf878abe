"""Unbiased risk from complementary labels whose matrix is known, and its two corrections.

Ishida, Niu, Menon, Sugiyama. Complementary-Label Learning for Arbitrary Losses and Models. ICML 2019, with the matrix
of Yu, Liu, Gong, Tao. Learning with Biased Complementary Labels. ECCV 2018.

    p(ȳ|x) = Qᵀ p(y|x)   ⇒   R = E[Σ_j Q⁻¹[ȳ, j] ℓ_j]
    class-wise:  L_j = Σ_k π̄_k Q⁻¹[k, j] E_{ȳ=k}[ℓ_j],   R = Σ_j L_j,   L_j ≥ 0 in expectation

With the uniform matrix these are `cl`, `cl-nn` and `cl-ga`. libcll names the corrected ones URE-TNN and URE-TGA.
Where |s̄| > 1 all of them average over the labels of s̄. A full set weighs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.cl import ClassWise, NonNegative, ascended
from wsl_builtins.estimators.shared import complement_weights
from wsl_methods.transition import MATRIX_HELP, RATIO_HELP, UNIFORM, inverse_of, process_of
from wsl_toolkit import Estimator, Kind, State, param

if TYPE_CHECKING:
    from torch import Tensor

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class TransitionUnbiased(ClassWise):
    """Unbiased risk from a complementary label with a known matrix, Σ_j Q⁻¹[ȳ, j] ℓ_j, averaged over s̄.

    Unbiased under MCL with the uniform matrix, which makes it `cl`, and under `cl-biased` with that process's own.
    """

    name: ClassVar[str] = "cl-t"
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Ishida et al. (ICML 2019); Yu, Liu, Gong, Tao (ECCV 2018)"

    matrix: str = param(UNIFORM, help=MATRIX_HELP)
    ratio: float = param(0.5, help=RATIO_HELP, gt=0)

    def __attrs_post_init__(self) -> None:
        process_of(self)

    def init_shared(self, candidates: CandidateSets) -> State:
        """π̄, and Q⁻¹ in float64: its entries cancel."""
        inverse = inverse_of(self, candidates.num_classes).to(candidates.sizes.device)
        return {**super().init_shared(candidates), "inverse": inverse}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        losses = self.losses(logits)
        weights = complement_weights(candidates, losses.dtype)
        return (weights @ state["inverse"].to(losses.dtype) * losses).sum(-1)

    def target_loss(self, logits: Tensor) -> Tensor:
        """ℓ itself: singletons are no outcome of a matrix other than the uniform one."""
        return self.losses(logits)


@attrs.frozen(kw_only=True)
class TransitionClassWise(TransitionUnbiased):
    """What the two corrections share: the risk split into parts, on a batch."""

    kind: ClassVar[Kind] = Kind.CONSISTENT

    split: str = param(
        "class",
        help="what the risk is split by: class (as printed, where no part is negative in expectation), or label, the "
        "complementary label, as several public codes have it",
        choices=("class", "label"),
    )

    def partial_risks(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Return the parts of a batch's risk, [..., K]; a ȳ that the batch lacks contributes nothing."""
        losses = self.losses(logits)  # [..., B, K]
        inverse = state["inverse"].to(losses.dtype)
        weights = complement_weights(candidates, losses.dtype)
        counts = weights.sum(-2, keepdim=True)
        # π̄_k / n_k, so that Σ_i weights_ik share_k (…) is π̄_k times the batch's mean given ȳ = k.
        weighted = weights * state["prior"] * (counts > 0) / counts.clamp(min=1e-12)
        if self.split == "class":
            return (weighted @ inverse * losses).sum(-2)
        return (weighted * (losses @ inverse.transpose(-1, -2))).sum(-2)


@attrs.frozen(kw_only=True)
class TransitionNonNegative(TransitionClassWise):
    """Non-negative correction of `cl-t`: Σ_j max(L_j, 0) over the class-wise risks of a batch."""

    name: ClassVar[str] = "cl-tnn"

    objective = NonNegative.objective


@attrs.frozen(kw_only=True)
class TransitionGradientAscent(TransitionClassWise):
    """Gradient ascent for `cl-t`: where some class-wise risk is negative, a step that raises the negative ones."""

    name: ClassVar[str] = "cl-tga"

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return ascended(self.partial_risks(logits, candidates, state))


ESTIMATORS: list[type[Estimator]] = [TransitionGradientAscent, TransitionNonNegative, TransitionUnbiased]
