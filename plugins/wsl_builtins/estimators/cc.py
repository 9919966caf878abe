"""Classifier-consistent partial-label learning.

Feng, Lv, Han, Xu, Niu, Geng, An, Sugiyama. Provably Consistent Partial-Label Learning. NeurIPS 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Estimator, Kind, Setting, State

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class ClassifierConsistent(Estimator):
    """Negative log-likelihood of the candidate set, -log Σ_{j∈s} p_j."""

    name: ClassVar[str] = "cc"
    assumption: ClassVar[Setting] = Setting.PPL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Feng et al. (NeurIPS 2020), Eq. (10)"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        # log Σ_{j∈s} p_j as a difference of two logsumexps: finite for any logits, no probability is formed.
        inside = torch.logsumexp(logits.masked_fill(~candidates, -torch.inf), dim=-1)
        return torch.logsumexp(logits, dim=-1) - inside
