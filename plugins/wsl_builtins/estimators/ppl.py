"""Proper partial labels: candidates weighted by their confidence.

Wu, Lv, Sugiyama. Learning with Proper Partial Labels. Neural Computation, 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.losses import cross_entropy

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class ProperPartialLabels(Estimator):
    """Confidence-weighted cross-entropy, Σ_{j∈s} r_j ℓ_j; confidences refreshed after each step (Algorithm 1)."""

    name: ClassVar[str] = "ppl"
    assumption: ClassVar[Setting] = Setting.PPL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Wu, Lv, Sugiyama (2023), Eq. (11) and Algorithm 1"
    update_when: ClassVar[Literal["never", "before", "after"]] = "after"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence"})

    def init_state(self, candidates: Tensor) -> State:
        """p̂ = 1/K, so r = 1/|s| on the candidates."""
        return {"confidence": candidates / candidates.sum(-1, keepdim=True)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return (state["confidence"] * cross_entropy(logits)).sum(-1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r_j = p_j / Σ_{k∈s} p_k on the candidates (Theorem 1 with the softmax of Eq. (12))."""
        import torch

        return {"confidence": torch.softmax(logits.masked_fill(~candidates, -torch.inf), dim=-1)}
