"""Weakly supervised contrast: a spectral contrastive loss whose positive pairs are as likely as labels say.

Zhou, Wang, Wei, Zhang. Weakly-Supervised Contrastive Learning for Imprecise Class Labels. ICML 2025 (WSC).

    L = -Σ_{j∉s} log(1 - p⁰_j) + λ(e) (Σ_{v=0}^{2} KL(r ‖ p^v) + C)                λ(e) = min(e/T, 1) λ at epoch e
    C = -2α/B Σ_i z¹_i·z²_i
        - 2β/(3B(B-1)) Σ_{i≠k} (r_i·r_k) (z¹_i·z²_k + z¹_i·z¹_k + z²_i·z²_k)
        + c (α + β/K)² / (2B(2B-1)) Σ_{u≠v} (u·v)²                                   u, v: all z¹ and z² of the batch
    r ← p⁰ normalised on s, from the logits that the loss was computed with

p⁰ belongs to a weak view, p¹ and p² to two strong ones, whose embeddings are z¹ and z²; one that is longer than 1 has
its length made 1. r begins as 1/|s| on the candidates. Without C, and with r of all three views, it is `cr-dpll`.

Settled as in the authors' code for partial labels: the form of C that takes classes to be of equal size; α = 1, β = 12
and c = 1, as in their runs with 10 classes (α = 2, β = 300 and c = 3 with 100); r of the weak view, or, as in their
runs with 100 classes, of the geometric mean of all views: `confidences = "views"`. The head's widths are those that
their network gives it.
Settled here: λ grows over `ramp` epochs, theirs over all epochs of a run, which an estimator is not told; their 200 is
the default. They add 1e-7 inside log(1-p), which is exact here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.cr_dpll import ConsistencyRegularised
from wsl_methods.machinery import no_self
from wsl_toolkit import Estimator, State, param

if TYPE_CHECKING:
    from torch import Tensor, nn


@attrs.frozen(kw_only=True)
class SpectralContrast(ConsistencyRegularised):
    """Consistency of three views, and embeddings that are near to each other as far as two labels are likely the same.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "wsc"
    citation: ClassVar[str] = "Zhou et al. (ICML 2025)"
    needs: ClassVar[frozenset[str]] = ConsistencyRegularised.needs | {"features"}

    weight: float = param(1.0, help="λ, the weight of consistency and contrast that the ramp ends with", ge=0)
    ramp: int = param(200, help="T: epochs over which the weight grows from 0", ge=1)
    own_pull: float = param(1.0, help="α: how strongly an example's two views attract each other", ge=0)
    class_pull: float = param(12.0, help="β: how strongly examples of likely the same class do", ge=0)
    spread: float = param(1.0, help="c: how strongly all embeddings are kept apart", ge=0)
    confidences: str = param("weak", help="r: of the weak view, or of all views", choices=("weak", "views"))
    width: int = param(256, help="size of an embedding", ge=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put views and a projection head around the network."""
        from torch import nn

        from wsl_toolkit.networks import Extended, classifier

        inside = 2 * self.width
        layers = [nn.Linear(classifier(network).in_features, inside), nn.BatchNorm1d(inside), nn.ReLU()]
        head = nn.Sequential(*layers, nn.Linear(inside, self.width))
        return Extended(network, self.needs, project=head, **self.views())

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The losses of consistency, and each example's part of λ C."""
        weight = self.weight * (state["epoch"] / self.ramp).clamp(max=1)
        return super().loss(logits, candidates, state) + weight * self._contrast(state)

    def _contrast(self, state: State) -> Tensor:
        """Return what each example adds to C, [B], times B."""
        import torch

        first, second = shortened(state["view_features"]), shortened(state["third_features"])
        confidence = state["confidence"].to(first.dtype)
        n, classes = confidence.shape
        both = torch.cat([first, second])
        near = both @ both.T
        own = near.diagonal(n)
        others = no_self(n, n, both.device)
        pairs = near[:n, n:] + near[:n, :n] + near[n:, n:]
        alike = (confidence @ confidence.T * pairs * others).sum(-1) / (3 * max(n - 1, 1))
        apart = (near.square() * no_self(2 * n, 2 * n, both.device)).sum(-1).view(2, n).sum(0) / (2 * (2 * n - 1))
        scale = self.spread * (self.own_pull + self.class_pull / classes) ** 2
        return -2 * self.own_pull * own - 2 * self.class_pull * alike + scale * apart

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r from the weak view, or from all."""
        if self.confidences == "views":
            return super().update(logits, candidates, state)
        return {"confidence": restricted_softmax(logits, candidates)}


def shortened(vectors: Tensor) -> Tensor:
    """Return vectors of length at most one: longer ones are divided by their length."""
    import torch

    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / length.clamp(min=1)


ESTIMATORS: list[type[Estimator]] = [SpectralContrast]
