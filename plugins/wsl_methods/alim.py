"""Adjusting the importance of labels off the candidate set.

Xu, Lian, Feng, Liu, Tao. ALIM: Adjusting Label Importance Mechanism for Noisy Partial Label Learning. NeurIPS 2023.

    w_j = 1 on s, λ off it                                  what a label counts
    ŷ   = argmax_j w_j p_j                                  pseudo-label, for contrast and prototypes as in PiCO
    c_j = softmax_j(q·μ_j / κ)                              what the prototypes say
    t   ← φ t + (1-φ) e_{argmax_j w_j c_j}                  `one-hot`;  pulled to w_j c_j / Σ_k w_k c_k with `scale`
    L   = CE(t, p) + λ_cont L_cont + λ_mix L_mix            L_mix: mixup of two examples and of their targets
    λ   ← the η-quantile over the last epoch of max_{j∈s} c_j / max_{j∉s} c_j, at most 1, from epoch e₀ on; before it 0

η is the share of sets that miss the true label, as far as one knows; with η = 0 λ stays 0, which is PiCO with mixup.

Settled as in the authors' code: contrast has no warm-up; the quantile is the ⌊ηn⌋-th of the sorted ratios; λ at most 1,
their `--max1`, which all their commands have. Settled here: an example is mixed with another of its batch, in theirs
with one of a second loader. Their default η is 0, the true rate being given for each data set; 0.2 is PLENCH's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_methods.machinery import enqueued, one_hot, target_loss, unit
from wsl_methods.pico import NEEDS, PrototypeEstimator
from wsl_toolkit import Estimator, State, param
from wsl_toolkit.losses import lifted

if TYPE_CHECKING:
    from torch import Tensor

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class Alim(PrototypeEstimator):
    """PiCO for sets that may miss the true label: labels off the set count a little, as much as the margins say.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "alim"
    lag: ClassVar[int] = 0  # its authors count epochs from 1
    citation: ClassVar[str] = "Xu et al. (NeurIPS 2023)"
    needs: ClassVar[frozenset[str]] = NEEDS | {"mixed"}

    noise_rate: float = param(0.2, help="η: share of sets that miss the true label", ge=0, lt=1)
    start: int = param(80, help="e₀: epochs before labels off the set count", ge=0)
    normalisation: str = param("one-hot", help="what targets are pulled to", choices=("one-hot", "scale"))
    mixing_weight: float = param(1.0, help="λ_mix, the weight of the mixup loss", ge=0)
    concentration: float = param(0.07, help="κ, the temperature of what the prototypes say", gt=0)

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike; no margin yet."""
        import torch

        return {**super().init_state(candidates), "margin": torch.zeros(len(candidates))}

    def init_shared(self, candidates: CandidateSets) -> State:
        """PiCO's, and λ = 0."""
        import torch

        return {**super().init_shared(candidates), "importance": torch.zeros(())}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The three losses of every example."""
        target = self._new_target(candidates, state)
        share, partner = state["mixed_share"], state["mixed_partner"]
        mixed = share * target + (1 - share) * target[partner]
        return (
            target_loss(logits, target)
            + self.weight * self.contrasted(self._label(logits, candidates, state), state)
            + self.mixing_weight * target_loss(state["mixed_logits"], mixed)
        )

    def _label(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return (lifted(logits.detach()) + log_importance(candidates, state)).argmax(-1)

    def _new_target(self, candidates: Tensor, state: State) -> Tensor:
        import torch

        scores = self.affinity(state) / self.concentration + log_importance(candidates, state)
        if self.normalisation == "one-hot":
            return self.moved(state, one_hot(scores.argmax(-1), state["target"]))
        return self.moved(state, torch.softmax(scores, dim=-1))

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """PiCO's updates, and each example's margin."""
        label = self._label(logits, candidates, state)
        return {
            "target": self._new_target(candidates, state),
            "margin": margin(self.affinity(state) / self.concentration, candidates),
            "prototypes": self.followed(label, state),
            **enqueued(state, keys=unit(state["momentum_features"]), key_labels=label),
        }

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Take λ from the margins of the epoch."""
        import torch

        if self.noise_rate == 0:
            return {}
        ordered = state["margin"].sort().values
        quantile = ordered[int(len(ordered) * self.noise_rate)]
        return {"importance": torch.where(state["epoch"] >= self.start, quantile, state["importance"])}


def log_importance(candidates: Tensor, state: State) -> Tensor:
    """Return log w_j, [B, K]: 0 on the candidates, log λ off them."""
    import torch

    return torch.where(candidates, 0.0, state["importance"].log())


def margin(scores: Tensor, candidates: Tensor) -> Tensor:
    """Return max_{j∈s} c_j / max_{j∉s} c_j, at most 1, for c = softmax of the scores."""
    import torch

    inside = scores.masked_fill(~candidates, -torch.inf).amax(-1)
    outside = scores.masked_fill(candidates, -torch.inf).amax(-1)
    return (inside - outside).clamp(max=0).exp()


ESTIMATORS: list[type[Estimator]] = [Alim]
