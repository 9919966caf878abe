"""What methods with augmented views, projection heads, queues and contrast share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from wsl_toolkit import Estimator, State, param
from wsl_toolkit.losses import cross_entropy, lifted

if TYPE_CHECKING:
    from torch import Tensor, nn


@attrs.frozen(kw_only=True)
class AugmentedEstimator(Estimator):
    """An estimator that looks at augmented views of its examples."""

    augmentation: str = param(
        "standard",
        help="standard: crops, mirrors and RandAugment for images, noise and dropped numbers for tables; none: every "
        "view is the example itself, as benchmark suites do it for tables",
        choices=("standard", "none"),
    )

    def views(self) -> dict[str, Any]:
        """Return how the weak and the strong view are made, as `Extended` takes them."""
        from wsl_toolkit.augmentation import strong, unchanged, weak

        if self.augmentation == "none":
            return {"weaken": unchanged, "augment": unchanged}
        return {"weaken": weak, "augment": strong}

    def extend(self, network: nn.Module) -> nn.Module:
        """Put the views around the network."""
        from wsl_toolkit.networks import Extended

        return Extended(network, self.needs, **self.views())


def projection(network: nn.Module, width: int) -> nn.Module:
    """Return a head of two layers on the network's features, as wide as them inside."""
    from torch import nn

    from wsl_toolkit.networks import classifier

    features = classifier(network).in_features
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width))


def similarities(query: Tensor, pool: Sequence[Tensor]) -> Tensor:
    """Return q_i·k for all embeddings k of the pool, [B, N]; the pool's parts are one after another."""
    import torch

    # Part by part, for most of a pool is a queue, which needs no gradient.
    return torch.cat([query @ part.T for part in pool], dim=-1)


def contrast(query: Tensor, pool: Sequence[Tensor], others: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Return -Σ_k w_ik log exp(q_i·k/τ) / Σ_{k'∈A_i} exp(q_i·k'/τ) of each query, [B].

    The pool holds N embeddings of length one; `others` [B, N] says who is in A_i, and w_ik is 0 for the rest.
    """
    import torch

    similarity = similarities(query / temperature, pool)
    log_total = similarity.masked_fill(~others, -torch.inf).logsumexp(-1)
    return weights.sum(-1) * log_total - (weights * similarity).sum(-1)


def averaging(positives: Tensor, dtype: Any) -> Tensor:
    """Return weights 1/|P_i| on the positives of each query, [B, N]; 0 where there are none."""
    weights = positives.to(dtype)
    return weights / weights.sum(-1, keepdim=True).clamp(min=1)


def target_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Return -Σ_j t_j log p_j of each example, [B]."""
    return (target * cross_entropy(logits)).sum(-1)


def uniform(candidates: Tensor) -> Tensor:
    """Return 1/|s| on the candidates."""
    return candidates / candidates.sum(-1, keepdim=True)


def top_candidate(scores: Tensor, members: Tensor) -> Tensor:
    """Return the member with the highest score, [B]."""
    import torch

    return lifted(scores).masked_fill(~members, -torch.inf).argmax(-1)


def one_hot(label: Tensor, like: Tensor) -> Tensor:
    """Return 1 at the label and 0 elsewhere, [B, K], in the shape and precision of `like`."""
    import torch

    return torch.nn.functional.one_hot(label, like.shape[-1]).to(like.dtype)


def unit(vectors: Tensor) -> Tensor:
    """Return vectors of length one; a zero stays zero."""
    import torch

    return torch.nn.functional.normalize(vectors, dim=-1)


def no_self(n: int, size: int, device: Any) -> Tensor:
    """Return a mask [n, size] that is False where the i-th of the pool is the i-th query itself."""
    import torch

    return torch.arange(size, device=device) != torch.arange(n, device=device).unsqueeze(1)


def empty_queue(size: int, examples: int, **shapes: Any) -> State:
    """Return a queue of `size` places: for each name the tensor that one place holds, and the place that is next.

    It has no more places than there are examples: what a further place would hold, a newer one of the same example's
    has replaced.
    """
    import torch

    size = min(size, examples)
    state = {name: value.expand(size, *value.shape).clone() for name, value in shapes.items()}
    return {**state, "place": torch.zeros((), dtype=torch.int64)}


def enqueued(state: State, **values: Tensor) -> State:
    """Return the queue after a batch has taken the places of the oldest."""
    import torch

    size = len(state[next(iter(values))])
    count = len(next(iter(values.values())))
    # Of a batch larger than the queue only the last ones would stay.
    newest = torch.arange(max(0, count - size), count, device=state["place"].device)
    places = (state["place"] + newest) % size
    new = {name: state[name].index_copy(0, places, value[newest]) for name, value in values.items()}
    return {**new, "place": (state["place"] + count) % size}


def among(chosen: Tensor, like: Tensor) -> Tensor:
    """Return weights whose mean over the batch is the mean over the chosen: B / their number; 0 for the others."""
    weights = chosen.to(like.dtype)
    return weights * (len(weights) / weights.sum().clamp(min=1))


def followed(
    prototypes: Tensor, label: Tensor, embeddings: Tensor, decay: Tensor | float, counted: Tensor | None = None
) -> Tensor:
    """Return μ, [K, d], after μ_c ← γ μ_c + (1-γ) z for one embedding z of label c after another, at length one.

    The i-th of n of a class weighs (1-γ) γ^(n-i). Embeddings with `counted` 0 move nothing.
    """
    members = one_hot(label, prototypes.T)
    if counted is not None:
        members = members * counted.unsqueeze(1)
    later = members.flip(0).cumsum(0).flip(0) - members
    weights = members * (1 - decay) * decay**later
    kept = decay ** members.sum(0).unsqueeze(1)
    return unit(kept * prototypes + weights.T @ embeddings)
