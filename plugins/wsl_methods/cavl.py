"""Class activation values: the candidate that the network reacts to most is taken for the true label.

Zhang, Feng, Han, Liu, Niu, Qin, Sugiyama. Exploiting Class Activation Value for Partial-Label Learning. ICLR 2022.

    v_j = |f_j - 1| f_j          ŷ = argmax_{j∈s} v_j          loss: ℓ_ŷ;  before the first ŷ: 1/|s| Σ_{j∈s} ℓ_j
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import cross_entropy, lifted

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class ClassActivationValue(Estimator):
    """Cross-entropy on one label, the candidate of largest class activation value |f_j - 1| f_j after the last step.

    The first visit of an example averages over its candidates. No promise is made: a label once mistaken may stay so.
    """

    name: ClassVar[str] = "cavl"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Zhang et al. (ICLR 2022)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "after"

    argmax: str = param(
        "candidates",
        help="over which classes ŷ is sought: candidates, or all, those off s having v = 0, as the "
        "authors' code does, where a non-candidate wins if every candidate's value is negative",
        choices=("candidates", "all"),
    )

    def init_state(self, candidates: Tensor) -> State:
        """1/|s| on the candidates, as for the average of their losses."""
        return {"target": candidates / candidates.sum(-1, keepdim=True)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return (state["target"] * cross_entropy(logits)).sum(-1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """One-hot at the largest value."""
        import torch

        f = lifted(logits.detach())
        value = (f - 1).abs() * f
        off = 0.0 if self.argmax == "all" else -torch.inf
        chosen = torch.where(candidates, value, off).argmax(-1, keepdim=True)
        classes = torch.arange(f.shape[-1], device=f.device)
        return {"target": (classes == chosen).to(f.dtype)}


ESTIMATORS: list[type[Estimator]] = [ClassActivationValue]
