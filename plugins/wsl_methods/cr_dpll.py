"""Consistency regularisation for deep partial-label learning.

Wu, Wang, Zhang. Revisiting Consistency Regularization for Deep Partial Label Learning. ICML 2022.

    L = -Σ_{j∉s} log(1 - p⁰_j) + λ(t) Σ_{v=0}^{2} KL(r ‖ p^v)      λ(t) = min(t/T', 1) λ at epoch t
    r_j ← Π_v (p^v_j)^{1/3} / Σ_{k∈s} Π_v (p^v_k)^{1/3} on s          from the logits that the loss was computed with

p⁰ belongs to a weak view, p¹ and p² to two strong ones; r, the closed form of what minimises the divergences, begins
as 1/|s| on the candidates.

Settled as in the authors' code: two strong views, T' = 100 epochs, r from the logits before the step. They add 1e-7
inside the logarithm; here log(1-p) is exact, and finite at any logits. (PLENCH has one strong view and takes r from a
second forward pass after the step.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import AugmentedEstimator, target_loss, uniform
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import cross_entropy, log_not

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class ConsistencyRegularised(AugmentedEstimator):
    """Pushes non-candidates down, and three views towards one distribution over the candidates.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "cr-dpll"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Wu et al. (ICML 2022)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence"})
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "third_view", "epoch"})
    stackable: ClassVar[bool] = False

    weight: float = param(1.0, help="λ, the weight of the consistency that the ramp ends with", ge=0)
    ramp: int = param(100, help="T': epochs over which the weight grows from 0", ge=1)

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"confidence": uniform(candidates)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The loss off the candidates and the weighted divergences, of every example."""
        outside = -log_not(logits).masked_fill(candidates, 0.0).sum(-1)
        weight = self.weight * (state["epoch"] / self.ramp).clamp(max=1)
        return outside + weight * divergences(state["confidence"], all_views(logits, state))

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r from the geometric mean of the views' probabilities."""
        return {"confidence": geometric_mean(all_views(logits, state), candidates)}


def all_views(logits: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of the weak view and of both strong ones."""
    return logits, state["view_logits"], state["third_logits"]


def geometric_mean(views: tuple[Tensor, ...], members: Tensor) -> Tensor:
    """Return the normalised geometric mean of the views' probabilities on `members`, 0 off them; a constant."""
    import torch

    return restricted_softmax(-cross_entropy(torch.stack(views).detach()).mean(0), members)


def divergences(target: Tensor, views: tuple[Tensor, ...]) -> Tensor:
    """Return Σ_v KL(target ‖ softmax of view v) of each example, [B]."""
    import torch

    return target_loss(torch.stack(views), target).sum(0) + len(views) * torch.xlogy(target, target).sum(-1)


ESTIMATORS: list[type[Estimator]] = [ConsistencyRegularised]
