"""A general framework of weak supervision, for partial labels and unlabelled examples.

Chen, Wang, Feng, Li, Wang, Xie, Sugiyama, Singh, Raj. A General Framework for Learning from Weak Supervision. ICML 2024
(GFWS); its method for partial labels is that of Chen et al., Imprecise Label Learning, NeurIPS 2024.

    an example with a set:      -Σ_{j∉s} log(1 - p⁰_j) + 1/3 Σ_{v=0}^{2} CE(q, p^v)
                                q: the expected label given the set, p⁰ normalised on s
    an unlabelled example:      1/2 Σ_{v=1}^{2} CE(u, p^v),   u: p⁰ / p̂ normalised
    the batch:                  -w/K Σ_k log mean p⁰_k        over the examples with a set
    p̂ ← 0.999 p̂ + 0.001 mean p⁰ of the unlabelled ones

p⁰ belongs to a weak view, p¹ and p² to strong ones. Expectations are taken over the paths of an automaton that accepts
what the supervision allows; for a set it has one step, and q is its closed form, as in the authors' code.

Settled as in that code: q and u are constants, made of the logits that the loss sees; both kinds of examples have a
mean of their own; a mean below 1e-6 counts as 1e-6; w is 0.1, as in their runs, and assumes classes of equal size. The
rule for unlabelled examples is that of their method for partial, noisy and unlabelled data, which has one strong view.
They add 1e-7 inside log(1-p), which is exact here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import AugmentedEstimator, among, target_loss
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import lifted, log_not, softmax

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets

SMALLEST_MEAN = 1e-6
"""What a class's mean probability counts as at least."""


@attrs.frozen(kw_only=True)
class GeneralFramework(AugmentedEstimator):
    """Consistency of three views with the expected label given the set; unlabelled examples take part too.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "gfws"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Chen et al. (ICML 2024)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "third_view", "unlabelled"})
    stackable: ClassVar[bool] = False

    balance: float = param(0.1, help="w, the weight of equal mean probabilities; 0 for classes of unequal size", ge=0)
    alignment_decay: float = param(0.999, help="how slowly p̂ follows the unlabelled examples", ge=0, lt=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put the views around the network."""
        from wsl_methods.modules import Fixed

        return Fixed(network, self.needs, **self.views())

    def init_shared(self, candidates: CandidateSets) -> State:
        """Equal shares of the classes."""
        import torch

        classes = candidates.num_classes
        return {"share": torch.full((classes,), 1 / classes)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Both kinds of examples, weighed so that the mean is the sum of their means, and the batch's balance."""
        unlabelled = candidates.all(-1)
        views = (logits, state["view_logits"], state["third_logits"])
        expected = restricted_softmax(state["fixed_logits"], candidates)
        told = -log_not(logits).masked_fill(candidates, 0.0).sum(-1)
        told = told + sum(target_loss(view, expected) for view in views) / len(views)
        guess = self._aligned(unlabelled, state)
        guessed = sum(target_loss(view, guess) for view in views[1:]) / len(views[1:])
        weighed = among(~unlabelled, logits) * told + among(unlabelled, logits) * guessed
        return weighed + self.balance * self._imbalance(logits, ~unlabelled)

    def _aligned(self, unlabelled: Tensor, state: State) -> Tensor:
        """u, [B, K]: what the weak view says, if unlabelled examples were of every class equally often."""
        import torch

        share = self._followed(state["fixed_logits"], unlabelled, state)
        log_share = share.clamp(min=torch.finfo(share.dtype).tiny).log()
        return torch.softmax(lifted(state["fixed_logits"]) - log_share, dim=-1)

    def _followed(self, logits: Tensor, unlabelled: Tensor, state: State) -> Tensor:
        """p̂ after this batch; without unlabelled examples it stays."""
        import torch

        share = state["share"]
        mean = (among(unlabelled, share).unsqueeze(1) * softmax(logits)).mean(0)
        return torch.where(unlabelled.any(), torch.lerp(share, mean.to(share.dtype), 1 - self.alignment_decay), share)

    def _imbalance(self, logits: Tensor, told: Tensor) -> Tensor:
        """-1/K Σ_k log mean p_k over the examples that have a set."""

        mean = (among(told, logits).unsqueeze(1) * softmax(logits)).mean(0)
        return -mean.clamp(min=SMALLEST_MEAN).log().mean()

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """Let p̂ follow."""
        return {"share": self._followed(logits, candidates.all(-1), state)}


ESTIMATORS: list[type[Estimator]] = [GeneralFramework]
