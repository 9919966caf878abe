"""Prototypes that guide embeddings without contrast.

Xia, Lv, Xu, Niu, Geng. Towards Effective Visual Representations for Partial-Label Learning. CVPR 2023 (PaPi).

    L = -Σ_j t_j log p_j + α(e) Σ_v (λ KL(t ‖ g^v) + (1-λ) KL(t' ‖ g^v))           v: a weak and a strong view
    g^v = softmax(z^v·μ / τ),  z^v the embedding of λ x^v + (1-λ) x'^v for another example x' of the batch, whose target
          is t';  λ ~ Beta(a, a)
    t   ← φ t + (1-φ) p normalised on s                     before the loss is taken
    μ_c ← normalise(γ μ_c + (1-γ) z)                        for the z of the unmixed views whose likeliest candidate in
                                                            that view is c: the weak ones, then the strong, one by one

α(e) = min(e/10, 1) α at epoch e. Embeddings and prototypes have length one.

Settled as in the authors' code: φ and γ are 0.99 in the first epoch; then they fall, from 0.95 to 0.8 and from 0.9 to
0.5. Settled here: they fall over `ramp` epochs, theirs over all epochs of a run, which an estimator is not told; their
500 is the default. τ and a are their code's defaults; their scripts choose both for each data set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.cr_dpll import divergences
from wsl_methods.machinery import AugmentedEstimator, followed, projection, target_loss, top_candidate, uniform, unit
from wsl_toolkit import Estimator, Kind, Setting, State, param

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets

FIRST_DECAY = 0.99
"""φ and γ in the first epoch."""
GROWTH = 10
"""Epochs over which the weight of the prototypes grows."""


@attrs.frozen(kw_only=True)
class Papi(AugmentedEstimator):
    """Targets that follow the classifier, and embeddings of mixed views that are drawn to class prototypes by them.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "papi"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Xia et al. (CVPR 2023)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"target"})
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "mixed", "features", "epoch"})
    stackable: ClassVar[bool] = False

    weight: float = param(1.0, help="α, the weight of the prototypes that the growth ends with", ge=0)
    temperature: float = param(0.3, help="τ of what the prototypes say", gt=0)
    mixing: float = param(8.0, help="a: how evenly two examples are mixed", gt=0)
    target_decay: tuple[float, ...] = param((0.95, 0.8), help="φ at the start and at the end of the ramp", ge=0, le=1)
    prototype_decay: tuple[float, ...] = param((0.9, 0.5), help="γ at the start and at the end of the ramp", ge=0, le=1)
    ramp: int = param(500, help="epochs over which φ and γ go from their first to their second value", ge=1)
    width: int = param(128, help="size of an embedding", ge=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put views, their mixtures and a projection head around the network."""
        from wsl_methods.modules import MixedViews

        head = projection(network, self.width)
        return MixedViews(network, self.needs, project=head, mixing=self.mixing, **self.views())

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"target": uniform(candidates)}

    def init_shared(self, candidates: CandidateSets) -> State:
        """No prototypes yet."""
        import torch

        return {"prototypes": torch.zeros(candidates.num_classes, self.width)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The cross-entropy with the moved target, and the weighted divergences, of every example."""
        target = self._moved(candidates, state)
        said = [self._said(state[name], state) for name in ("mixed_features", "mixed_view_features")]
        share, partner = state["mixed_share"], state["mixed_partner"]
        drawn = share * divergences(target, tuple(said)) + (1 - share) * divergences(target[partner], tuple(said))
        weight = self.weight * (state["epoch"] / GROWTH).clamp(max=1)
        return target_loss(logits, target) + weight * drawn

    def _said(self, features: Tensor, state: State) -> Tensor:
        """Return z·μ/τ for every class, [B, K]."""
        return unit(features) @ state["prototypes"].T / self.temperature

    def _moved(self, candidates: Tensor, state: State) -> Tensor:
        decay = self._decay(self.target_decay, state)
        return decay * state["target"] + (1 - decay) * restricted_softmax(state["fixed_logits"], candidates)

    def _decay(self, ends: tuple[float, ...], state: State) -> Tensor:
        """Return what falls from the first to the second end over the ramp, which begins in the second epoch."""
        import torch

        behind = ((state["epoch"] - 1) / self.ramp).clamp(min=0, max=1)
        return torch.where(state["epoch"] < 1, FIRST_DECAY, ends[0] + (ends[-1] - ends[0]) * behind)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """Move targets and prototypes."""
        import torch

        views = (logits, state["view_logits"])
        labels = torch.cat([top_candidate(view, candidates) for view in views])
        embeddings = torch.cat([unit(state[name]) for name in ("features", "view_features")])
        decay = self._decay(self.prototype_decay, state)
        return {
            "target": self._moved(candidates, state),
            "prototypes": followed(state["prototypes"], labels, embeddings, decay),
        }


ESTIMATORS: list[type[Estimator]] = [Papi]
