"""Complementary labels selected completely at random: one negative-unlabelled problem for each class.

Wang, Ishida, Zhang, Niu, Sugiyama. Learning with Complementary Labels Revisited: The Selected-Completely-at-Random
Setting Is More Practical. ICML 2024.

    p(k ∈ s̄ | x, y) = c_k for every y ≠ k, 0 for y = k          ψ(z) = log(1 + e^{-z})
    R = Σ_k E[p_k ψ(f_k) + (1 - p_k) ψ(-f_k)]                    the one-versus-rest risk
      = Σ_k (1 - π_k) E[ψ(-f_k) | k ∈ s̄] + { E[ψ(f_k)] - (1 - π_k) E[ψ(f_k) | k ∈ s̄] }

The part in braces is π_k E[ψ(f_k) | y = k] ≥ 0; where a batch makes it negative its absolute value is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import lifted

if TYPE_CHECKING:
    from torch import Tensor

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class SelectedAtRandom(Estimator):
    """One-versus-rest risk from complementary labels selected completely at random, corrected class by class.

    With the right class priors and without the correction it is unbiased wherever p(k ∈ s̄ | y) is the same for all
    y ≠ k, which includes MCL. With the priors that it assumes by default, equal ones, no promise is made.
    """

    name: ClassVar[str] = "scarce"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Wang et al. (ICML 2024)"

    correction: str = param(
        "abs",
        help="what is done to a negative part: abs (the paper's), max (with 0) or none",
        choices=("abs", "max", "none"),
    )
    prior: str = param(
        "uniform",
        help="the class priors π: uniform (the authors' code), or estimated from how often each class is excluded, "
        "which is right where all classes are excluded at the same rate c",
        choices=("uniform", "estimated"),
    )

    def init_shared(self, candidates: CandidateSets) -> State:
        """1 - π_k, and the rate c_k = p(k ∈ s̄) / (1 - π_k) at which class k is excluded where it is wrong."""
        import torch

        k = candidates.num_classes
        labelled = candidates.labelled()
        excluded = len(labelled) - (candidates.class_counts() - (len(candidates) - len(labelled))).double()
        frequency = (excluded / max(len(labelled), 1)).clamp(min=torch.finfo(torch.float32).eps)
        wrong = torch.full_like(frequency, 1 - 1 / k)
        if self.prior == "estimated":
            wrong = ((k - 1) * frequency / frequency.sum()).clamp(max=1)
        return {"wrong": wrong.float(), "rate": (frequency / wrong).float()}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Σ_k ψ(f_k) + 1{k ∈ s̄} (ψ(-f_k) - ψ(f_k))/c_k: unbiased, uncorrected, of one example."""
        rise, fall = _both(logits)
        outside = (~candidates).to(rise.dtype)
        terms = rise + outside / state["rate"].to(rise.dtype) * (fall - rise)
        return terms.sum(-1) * (outside.sum(-1) > 0)

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        rise, fall = _both(logits)  # [..., B, K]
        outside = (~candidates).to(rise.dtype)
        labelled = (outside.sum(-1, keepdim=True) > 0).to(rise.dtype)
        # Means given k ∈ s̄; a class that the batch never excludes contributes 0 to them.
        given = outside / outside.sum(-2, keepdim=True).clamp(min=1) * state["wrong"].to(rise.dtype)
        of_all = (labelled * rise).sum(-2) / labelled.sum(-2).clamp(min=1)
        rest = of_all - (given * rise).sum(-2)
        if self.correction != "none":
            rest = rest.abs() if self.correction == "abs" else rest.clamp(min=0)
        return ((given * fall).sum(-2) + rest).sum(-1)


def _both(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return ψ(f) and ψ(-f)."""
    import torch

    f = lifted(logits)
    return torch.nn.functional.softplus(-f), torch.nn.functional.softplus(f)


ESTIMATORS: list[type[Estimator]] = [SelectedAtRandom]
