"""Ordinary supervised learning: the upper bound that every other estimator is measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import BaseLossEstimator
from wsl_toolkit import Kind, Setting, State

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Supervised(BaseLossEstimator):
    """The loss ℓ_y with the true label: the oracle, and the only estimator that may see it."""

    name: ClassVar[str] = "supervised"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.UNBIASED
    needs: ClassVar[frozenset[str]] = frozenset({"true_labels"})

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        # The engine trains on the singletons {y}, so the mean has one term. On held-out candidate sets, which hide
        # the label, it is that of `average`.
        losses = self.losses(logits)
        inside = candidates.to(losses.dtype)
        return (inside * losses).sum(-1) / inside.sum(-1)
