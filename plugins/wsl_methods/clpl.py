"""A convex loss for partial labels: the mean score of the candidates, and each other label's.

Cour, Sapp, Taskar. Learning from Partial Labels. JMLR 2011 (CLPL).

    ℓ = ψ(1/|s| Σ_{j∈s} f_j) + Σ_{k∉s} ψ(-f_k),   ψ(u) = max(0, 1-u)²

Convex in f, hence in the weights of the backbone `linear`, which with weight decay is their support vector machine.

Read in the public code of later comparisons; the paper's text and its authors' code were not at hand. Two of those
codes take the mean of the candidates' scores, the paper's equation 2 by their word; a third takes the sum, which the
paper has as a variant: `pooling = "sum"`. Any convex ψ that falls will do: `surrogate`. One code puts probabilities in
the place of scores; that is no longer convex, and not done here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Estimator, Kind, Setting, State, param

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class ConvexPartialLabels(Estimator):
    """A margin for the mean score of the candidates, and one for each other label's; a full set has the first alone.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "clpl"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Cour et al. (JMLR 2011)"

    surrogate: str = param(
        "squared-hinge",
        help="ψ(u): squared-hinge, max(0, 1-u)²; hinge, max(0, 1-u); logistic, log(1 + exp(-u))",
        choices=("squared-hinge", "hinge", "logistic"),
    )
    pooling: str = param(
        "mean", help="what of the candidates' scores is to be high: their mean or their sum", choices=("mean", "sum")
    )

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        members = candidates.to(logits.dtype)
        if self.pooling == "mean":
            members = members / members.sum(-1, keepdim=True)
        inside = (members * logits).sum(-1)
        return self._psi(inside) + self._psi(-logits).masked_fill(candidates, 0.0).sum(-1)

    def _psi(self, score: Tensor) -> Tensor:
        from torch.nn import functional

        if self.surrogate == "logistic":
            return functional.softplus(-score)
        missing = (1 - score).clamp(min=0)
        return missing if self.surrogate == "hinge" else missing.square()


ESTIMATORS: list[type[Estimator]] = [ConvexPartialLabels]
