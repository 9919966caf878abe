"""Progressive purification of candidate sets.

Xu, Liu, Lv, Qiao, Geng. Progressive Purification for Instance-Dependent Partial Label Learning. ICML 2023.

    L = 1/3 Σ_{v=0}^{2} -Σ_j w_j log p^v_j              w_j ← p⁰_j / Σ_{k∈S} p⁰_k on S, from the weak view's logits
    every `window` epochs after the warm-up, with w̄ the mean of w over the last `window` epochs:
        S ← S \\ {j: w̄_j < θ max_k w̄_k},   w ← w̄ normalised on S
        if fewer than a ten-thousandth of all n·K marks changed, and θ < 0.4:   θ ← (1 + ε) θ

S begins as the candidate set and only shrinks; one weak view and two strong ones are trained with the same w.

Settled as in the authors' code, whose default values these are. (PLENCH has one view, purifies after every epoch and
moves w by a second forward pass.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import AugmentedEstimator, target_loss, uniform
from wsl_toolkit import Estimator, Kind, Setting, State, param

if TYPE_CHECKING:
    from torch import Tensor

    from wsl_toolkit import CandidateSets

LARGEST_THRESHOLD = 0.4
"""θ grows no further than past this."""
FEW_CHANGES = 1e-4
"""Share of the n·K marks below which a purification has found little, so that θ may grow."""


@attrs.frozen(kw_only=True)
class ProgressivePurification(AugmentedEstimator):
    """Confidences on candidate sets that lose, every few epochs, the labels that have been unlikely for a while.

    Its authors prove that purification approaches the Bayes-optimal classifier under conditions of theirs; no promise
    about bias is made.
    """

    name: ClassVar[str] = "pop"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Xu et al. (ICML 2023)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "third_view", "epoch"})
    stackable: ClassVar[bool] = False

    threshold: float = param(
        1e-3, help="θ to begin with: a label this much less likely than the top one goes", gt=0, lt=1
    )
    growth: float = param(1e-3, help="ε: by how much θ grows when little changes", ge=0)
    warm_up: int = param(20, help="epochs before the first purification", ge=0)
    window: int = param(5, help="epochs whose confidences are averaged, and between purifications", ge=1)

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike, the candidate set, and no confidences remembered."""
        import torch

        n, k = candidates.shape
        return {
            "confidence": uniform(candidates),
            "members": candidates.clone(),
            "remembered": torch.zeros(n, self.window, k),
        }

    def init_shared(self, candidates: CandidateSets) -> State:
        """θ."""
        import torch

        return {"threshold": torch.tensor(self.threshold)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The mean over the views of the cross-entropy with the confidences."""
        import torch

        views = torch.stack([logits, state["view_logits"], state["third_logits"]])
        return target_loss(views, state["confidence"]).mean(0)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """w from the weak view's probabilities on what is left of the set."""
        return {"confidence": restricted_softmax(logits, state["members"])}

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Remember the confidences, and purify if it is time."""
        import torch

        slot = torch.arange(self.window, device=candidates.device) == state["epoch"] % self.window
        remembered = torch.where(slot[:, None], state["confidence"].unsqueeze(1), state["remembered"])
        if int(state["epoch"]) < self.warm_up or int(state["epoch"]) % self.window:
            return {"remembered": remembered}
        mean = remembered.mean(1)
        members = state["members"] & (mean >= state["threshold"] * mean.amax(1, keepdim=True))
        changed = (members != state["members"]).sum()
        grows = (changed < FEW_CHANGES * members.numel()) & (state["threshold"] < LARGEST_THRESHOLD)
        kept = mean * members
        return {
            "remembered": remembered,
            "members": members,
            "confidence": kept / kept.sum(1, keepdim=True),
            "threshold": torch.where(grows, (1 + self.growth) * state["threshold"], state["threshold"]),
        }


ESTIMATORS: list[type[Estimator]] = [ProgressivePurification]
