"""Dynamic rebalancing: targets without the bias that unequal classes give the network.

Hong, Yao, Zhou, Zhang, Wang. Long-Tailed Partial Label Learning via Dynamic Rebalancing. ICLR 2023 (RECORDS).

    m ← β m + (1-β) mean of the batch's features           π = softmax(W m + b)     with the network's last layer
    targets are those of any estimator that keeps confidences, made of f - log π instead of f, in every view
    the loss stays that of the logits f;  predictions are argmax f - log π

`Debiasing` is this, in front of an estimator's class. Two come with it:

    records-proden:   L = Σ_j r_j ℓ_j                                               r ← p normalised on s
    records-corr:     L = Σ_v (KL(r ‖ p^v) - Σ_{j∉s} log(1 - p^v_j)), v: weak, strong     r ← √(p⁰p¹) normalised on s

Settled as in the authors' code: m starts at 0; features are averaged over the views; targets stay in the first epoch; π
has 1e-9 added. Settled here: a label off the set is one that is not a candidate, where theirs is one whose target is 0,
which a candidate's may be by rounding. Their variant with mixup is not here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.cr_dpll import divergences, geometric_mean
from wsl_methods.machinery import AugmentedEstimator, target_loss, uniform
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import lifted, log_not

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets

SMALLEST_SHARE = 1e-9
"""What is added to the share of a class before its logarithm is taken."""
VIEWS = ("view_logits", "third_logits")
"""The logits beside the batch's own that targets may be made of."""


def log_share(bias_logits: Tensor) -> Tensor:
    """Return log(π + 1e-9), finite for any logits."""
    import torch

    log_p = torch.log_softmax(lifted(bias_logits), dim=-1)
    return torch.logaddexp(log_p, torch.full_like(log_p, math.log(SMALLEST_SHARE)))


class Debiasing(Estimator):
    """Put before the class of an estimator whose `update` makes targets of logits, before the step.

    The class must need 'features' and 'epoch', and have a parameter `feature_decay`.
    """

    __slots__ = ()

    feature_decay: float

    def extend(self, network: nn.Module) -> nn.Module:
        """Put the views and the mean of the features around the network."""
        from wsl_methods.modules import Centred

        return Centred(network, self.needs, log_share, self.feature_decay, **self.view_makers())

    def view_makers(self) -> dict[str, Any]:
        """Return how views are made, as `Extended` takes it."""
        return self.views() if isinstance(self, AugmentedEstimator) else {}

    def init_shared(self, candidates: CandidateSets) -> State:
        """The estimator's own, and equal shares of the classes."""
        import torch

        classes = candidates.num_classes
        return {**super().init_shared(candidates), "share": torch.full((classes,), 1 / classes)}

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """The estimator's targets, of logits without the bias; in the first epoch they stay as they were."""
        import torch

        bias = log_share(state["bias_logits"])
        views = {name: state[name] - bias for name in VIEWS if name in state}
        new = super().update(logits - bias, candidates, {**state, **views})
        kept = {name: torch.where(state["epoch"] < 1, state[name], value) for name, value in new.items()}
        return {**kept, "share": torch.softmax(lifted(state["bias_logits"][0]), dim=-1)}

    def report(self, state: State) -> dict[str, Tensor]:
        """The smallest and the largest share of a class that the network leans to."""
        return {"smallest_class": state["share"].min(), "largest_class": state["share"].max()}


@attrs.frozen(kw_only=True)
class Confident(Estimator):
    """Confidences on the candidates, from the logits before the step."""

    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Hong et al. (ICLR 2023)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence"})
    stackable: ClassVar[bool] = False

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"confidence": uniform(candidates)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return target_loss(logits, state["confidence"])

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r = p normalised on the candidates."""
        return {"confidence": restricted_softmax(logits, candidates)}


@attrs.frozen(kw_only=True)
class TwoViews(AugmentedEstimator, Confident):
    """Two views that are drawn to one distribution over the candidates, and away from the other labels."""

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The divergences and the losses off the set, of every example."""
        import torch

        views = (logits, state["view_logits"])
        outside = -log_not(torch.stack(views)).masked_fill(candidates, 0.0).sum((0, -1))
        return divergences(state["confidence"], views) + outside

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r from both views."""
        return {"confidence": geometric_mean((logits, state["view_logits"]), candidates)}


@attrs.frozen(kw_only=True)
class RecordsProden(Debiasing, Confident):
    """`proden` whose confidences are free of the bias that unequal classes give the network.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "records-proden"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "epoch"})

    feature_decay: float = param(0.9, help="β: how slowly the mean of the features follows", ge=0, lt=1)


@attrs.frozen(kw_only=True)
class Records(Debiasing, TwoViews):
    """Consistency between two views, whose targets are free of the bias that unequal classes give the network.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "records-corr"
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "features", "epoch"})

    feature_decay: float = param(0.9, help="β: how slowly the mean of the features follows", ge=0, lt=1)


ESTIMATORS: list[type[Estimator]] = [Records, RecordsProden]
