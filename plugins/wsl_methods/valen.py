"""Variational label enhancement.

Xu, Qiao, Geng, Zhang. Instance-Dependent Partial Label Learning. NeurIPS 2021.

Each example has a latent label distribution, of which an encoder infers a Dirichlet posterior; samples d from it teach
the classifier, and must explain the inputs, the candidate sets and the graph of nearest neighbours.

    L = ρ L_rec + β KL(Dir(α̃) ‖ Dir(1)) + γ CE(o, softmax a) + θ CE(d', p)          a: the encoder's logits
    d ~ Dir(α),  α_j = softmax_j(a) / Σ_{k∈s} softmax_k(a) on s, + 0.01;   α̃_j = exp(a_j/4), kept within [0.01, 30]
    L_rec = ω mean (x̂(d) - x)² + 0.01 mean BCE(s, σ(d)) + mean (softmax(σ(d dᵀ)) - A)²
    o ← p_j / Σ_{k∈s} p_k on s,   d' ← κ d + (1-κ) o with d normalised on s

A is the row-normalised graph that joins each example with itself and its k nearest neighbours. The warm-up trains
CE(o, p) alone; after it A is computed, and d' = o.

Settled as in the authors' code, which trains encoder, decoder and classifier with one optimiser. Settled here: nearest
neighbours are those of the network's logits at the end of the warm-up (theirs: of its last hidden layer for images, of
the inputs for tables), because state has a size of its own before a network is seen; the encoder starts anew (theirs
starts as a copy of the classifier on two of their data sets); before a convolutional network x is the image averaged to
8×8 points. The weights are those of their commands for images, ω = 0.01 among them; for tables they have γ = 20,
β = 0.01 and, in the loop that trains on the community's small tables, ω = 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import target_loss, uniform
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import lifted

if TYPE_CHECKING:
    from torch import Tensor, nn

SMALL = 0.01
"""What every class has of α, the weight of the sets' reconstruction, and by default that of the inputs'."""
CHUNK = 1024
"""Examples whose distances to all others are computed at once."""


@attrs.frozen(kw_only=True)
class Valen(Estimator):
    """Label distributions from a learned Dirichlet posterior, which explain inputs, sets and neighbours.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "valen"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Xu et al. (NeurIPS 2021)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence", "description"})
    needs: ClassVar[frozenset[str]] = frozenset({"epoch", "seed"})
    stackable: ClassVar[bool] = False

    warm_up: int = param(10, help="epochs in which the classifier is trained alone", ge=1)
    neighbours: int = param(3, help="k: neighbours of an example in the graph", ge=1)
    reconstruction: float = param(1.0, help="ρ, the weight of what samples must explain", ge=0)
    inputs: float = param(
        SMALL, help="ω, the weight of the inputs in that: the authors have 0.01 for images and 1 for small tables", ge=0
    )
    prior: float = param(0.1, help="β, the weight of the divergence from the prior", ge=0)
    encoding: float = param(10.0, help="γ, the weight of the encoder's cross-entropy", ge=0)
    teaching: float = param(1.0, help="θ, the weight of the classifier's cross-entropy", ge=0)
    correction: float = param(
        1.0, help="κ: how much of a target is the sample's, the rest being the classifier's", ge=0, le=1
    )

    def extend(self, network: nn.Module) -> nn.Module:
        """Put an encoder and a decoder beside the network."""
        from wsl_methods.modules import Variational
        from wsl_toolkit.networks import classifier

        return Variational(network, self.needs, classifier(network).out_features)

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike; no logits seen, and no neighbours known: the first is the example's own number."""
        import torch

        n = len(candidates)
        return {
            "confidence": uniform(candidates),
            "description": uniform(candidates),
            "seen": torch.zeros(candidates.shape),
            "neighbours": torch.full((n, self.neighbours + 1), -1),
        }

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """CE(o, p) in the warm-up, then L, of every example."""
        import torch

        early = target_loss(logits, state["confidence"])
        return torch.where(state["epoch"] < self.warm_up, early, self._bound(logits, candidates, state))

    def _bound(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        inferred = lifted(state["twin_logits"])
        sample = drawn(inferred, candidates, state)
        return (
            self.reconstruction * explained(sample, candidates, state, self.inputs)
            + self.prior * prior_divergence(inferred)
            + self.encoding * target_loss(inferred, state["confidence"])
            + self.teaching * target_loss(logits, state["description"])
        )

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """o from the classifier; d' from the sample that the loss was computed with, in the warm-up from o."""
        import torch

        confidence = restricted_softmax(logits, candidates)
        sample = drawn(lifted(state["twin_logits"]), candidates, state) * candidates
        sample = sample / sample.sum(-1, keepdim=True)
        # The classifier's part is what it was when the loss was computed.
        described = self.correction * sample + (1 - self.correction) * state["confidence"]
        return {
            "confidence": confidence,
            "description": torch.where(state["epoch"] < self.warm_up, confidence, described).to(confidence.dtype),
            "seen": lifted(logits).to(state["seen"].dtype),
        }

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Compute the graph when the warm-up ends."""
        if int(state["epoch"]) != self.warm_up - 1:
            return {}
        return {"neighbours": nearest(state["seen"], self.neighbours)}


def drawn(inferred: Tensor, candidates: Tensor, state: State) -> Tensor:
    """Return d ~ Dir(α), [B, K], with gradient; the same for the same seed."""
    import torch

    log_p = torch.log_softmax(inferred, dim=-1).masked_fill(~candidates, -torch.inf)
    # In logarithms: where almost all of the softmax lies off the set, a quotient's gradient would overflow.
    alpha = (log_p - log_p.logsumexp(-1, keepdim=True).detach()).exp() + SMALL
    rng = torch.Generator(device=alpha.device).manual_seed(int(state["seed"]))
    gammas = torch._standard_gamma(alpha, generator=rng).clamp(min=torch.finfo(alpha.dtype).tiny)
    return gammas / gammas.sum(-1, keepdim=True)


def explained(sample: Tensor, candidates: Tensor, state: State, inputs_weight: float) -> Tensor:
    """Return L_rec of each example: its input, its set, and its row of the graph."""
    import torch
    from torch.nn import functional

    hidden = torch.relu(functional.linear(sample, state["decoder_hidden_weight"], state["decoder_hidden_bias"]))
    decoded = functional.linear(hidden, state["decoder_output_weight"], state["decoder_output_bias"])
    inputs = (decoded - state["inputs"]).square().mean(-1)
    sets = (functional.softplus(sample) - candidates * sample).mean(-1)
    alike = torch.softmax(torch.sigmoid(sample @ sample.T), dim=-1)
    graph = (alike - adjacency(state["neighbours"], sample.dtype)).square().mean(-1)
    return inputs_weight * inputs + SMALL * sets + graph


def adjacency(neighbours: Tensor, dtype: object) -> Tensor:
    """Return the part of A between the examples of a batch, [B, B]."""
    joined = (neighbours.unsqueeze(2) == neighbours[:, 0]).any(1)
    return joined.to(dtype) / neighbours.shape[1]  # type: ignore[call-overload, no-any-return]


def prior_divergence(inferred: Tensor) -> Tensor:
    """Return KL(Dir(α̃) ‖ Dir(1)) of each example."""
    import torch

    # Kept within bounds before the exponential, so that neither it nor its gradient overflows.
    alpha = (inferred / 4).clamp(math.log(SMALL), math.log(30)).exp()
    total = alpha.sum(-1)
    expected = torch.digamma(alpha) - torch.digamma(total).unsqueeze(-1)
    return total.lgamma() - alpha.lgamma().sum(-1) - math.lgamma(alpha.shape[-1]) + ((alpha - 1) * expected).sum(-1)


def nearest(points: Tensor, k: int) -> Tensor:
    """Return each point's own number and those of its k nearest others, [n, k+1]; -1 where there are not so many."""
    import torch

    n = len(points)
    found = torch.full((n, k + 1), -1, device=points.device)
    found[:, 0] = torch.arange(n, device=points.device)
    reach = min(k, n - 1)
    for start in range(0, n, CHUNK):
        rows = found[start : start + CHUNK, 0]
        distance = torch.cdist(points[rows], points)
        distance[torch.arange(len(rows), device=points.device), rows] = torch.inf
        found[rows, 1 : 1 + reach] = distance.topk(reach, largest=False).indices
    return found


ESTIMATORS: list[type[Estimator]] = [Valen]
