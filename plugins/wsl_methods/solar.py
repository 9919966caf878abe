"""Sinkhorn label refinery, for classes of very different size.

Wang, Xia, Li, Mao, Feng, Chen, Zhao. SoLar: Sinkhorn Label Refinery for Imbalanced Partial-Label Learning. NeurIPS
2022.

    Q  =  N diag(c) P^λ diag(r),   P_ij = p_j 1{j ∈ s_i},   r = π / (P^λᵀ c),   c = 1/N / (P^λ r)    in turn, T times
    q_i: the batch's rows of Q;  P holds the batch and, once it is full, a queue of earlier examples

    chosen:  of the examples with argmax q = j, the ⌈B π_j ρ⌉ with the smallest -Σ_k q_k log p_k (at least one),
             and everyone with Σ_k q_k p_k > τ
    L = η (CE(q, p) + CE(q, p') + CE(mixed q, mixed p)), each a mean over the chosen
        + (1-η) CE(r, p), a mean over the others                              p' belongs to a strong view
    r ← p normalised on s;   π ← (1-γ) π + γ (share of each class among argmax_{j∈s} p_j of all examples) after an epoch

η and ρ grow over `ramp` epochs; in the first epoch L is the mean of CE(r, p).

Settled as in the authors' code: p of a weak view makes both P and the choice; r is that of the last visit; λ = 3; 50
iterations, for their test of convergence (Σ c + Σ r < 0.1) is never met. Settled here: they estimate π in 20 epochs
with γ = 0.1 and begin again, with new weights and γ = 0.01; an estimator cannot begin again, so γ changes on the way.
Pairs for mixup are drawn from the whole batch, and those of two chosen examples count. The queue has no more places
than there are examples. P is kept as r and its rows' sums, so that no row vanishes where the network is sure of another
class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import AugmentedEstimator, among, empty_queue, enqueued, target_loss, top_candidate, uniform
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import log_set_probability, softmax

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets

LEAST = 1e-300
"""What is divided by is at least this: a class that nobody may belong to has no mass to share out."""


@attrs.frozen(kw_only=True)
class Solar(AugmentedEstimator):
    """Targets that agree with the sets, the model and a class prior that is learned; the surest examples count most.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "solar"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Wang et al. (NeurIPS 2022)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence"})
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "mixed", "epoch", "all_logits"})
    stackable: ClassVar[bool] = False

    sharpness: float = param(3.0, help="λ: the power to which probabilities are raised", gt=0)
    iterations: int = param(50, help="T: Sinkhorn's iterations", ge=1)
    queue: int = param(16384, help="earlier examples that Sinkhorn's iterations see too, at most all", ge=1)
    weight: float = param(0.9, help="η, the weight of the chosen examples that the ramp ends with", ge=0, le=1)
    chosen_share: tuple[float, ...] = param((0.2, 0.8), help="ρ at the start and at the end of the ramp", ge=0, le=1)
    ramp: int = param(50, help="epochs over which η and ρ grow", ge=1)
    threshold: float = param(0.99, help="τ: who agrees with its target more than this is chosen too", ge=0, le=1)
    prior_rate: tuple[float, ...] = param(
        (0.1, 0.01), help="γ in the first epochs and after them: how fast the class prior follows", ge=0, le=1
    )
    prior_epochs: int = param(20, help="how many first epochs γ has its first value", ge=0)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put the views around the network."""
        from wsl_methods.modules import Fixed

        return Fixed(network, self.needs, **self.views())

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"confidence": uniform(candidates)}

    def init_shared(self, candidates: CandidateSets) -> State:
        """Equal shares of the classes, and an empty queue."""
        import torch

        classes = candidates.num_classes
        queue = empty_queue(self.queue, len(candidates), seen=torch.zeros(classes), seen_log_mass=torch.zeros(()))
        return {"prior": torch.full((classes,), 1 / classes), **queue}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """CE(r, p) in the first epoch, then all four terms, each example's weighed so that their mean is L."""
        import torch

        refined = self._refined(candidates, state)
        chosen = self._chosen(refined, state)
        share, partner = state["mixed_share"], state["mixed_partner"]
        mixed = target_loss(state["mixed_logits"], share * refined + (1 - share) * refined[partner])
        sure = target_loss(logits, refined) + target_loss(state["view_logits"], refined)
        sure = among(chosen, logits) * sure + among(chosen & chosen[partner], logits) * mixed
        unsure = target_loss(logits, state["confidence"])
        weight = self.weight * self._ramped(state)
        later = weight * sure + (1 - weight) * among(~chosen, logits) * unsure
        return torch.where(state["epoch"] < 1, unsure, later)

    def _ramped(self, state: State) -> Tensor:
        return (state["epoch"] / self.ramp).clamp(max=1)

    def _refined(self, candidates: Tensor, state: State) -> Tensor:
        """q of the batch, [B, K]."""
        import torch

        rows, log_mass = masses(state["fixed_logits"], candidates)
        earlier, dtype = state["seen"], rows.dtype
        # An empty queue's rows are 0; it is used once its last place is filled.
        full = earlier[-1].any().to(dtype)
        counted = torch.cat([full.expand(len(earlier)), torch.ones(len(rows), dtype=dtype, device=rows.device)])
        rows, log_mass = torch.cat([earlier, rows]), torch.cat([state["seen_log_mass"], log_mass])
        shared_out = sinkhorn(rows, log_mass, counted, state["prior"], self.sharpness, self.iterations)
        return shared_out[len(earlier) :]

    def _chosen(self, refined: Tensor, state: State) -> Tensor:
        """Who is learned from as if its target were right, [B]."""

        fixed = state["fixed_logits"]
        first, last = self.chosen_share[0], self.chosen_share[-1]
        share = first + (last - first) * self._ramped(state)
        label = refined.argmax(-1)
        room = (len(refined) * state["prior"] * share).ceil().clamp(min=1)
        small = rank_within(label, target_loss(fixed, refined), refined.shape[-1]) < room[label]
        return small | ((refined * softmax(fixed)).sum(-1) > self.threshold)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r from the weak view, which also takes the places of the oldest in the queue."""
        rows, log_mass = masses(logits, candidates)
        return {"confidence": rows, **enqueued(state, seen=rows, seen_log_mass=log_mass)}

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Let the class prior follow the likeliest candidates of all examples."""
        import torch

        prior = state["prior"]
        found = top_candidate(state["all_logits"], candidates).bincount(minlength=len(prior)) / len(candidates)
        rate = torch.where(state["epoch"] < self.prior_epochs, self.prior_rate[0], self.prior_rate[-1])
        return {"prior": torch.lerp(prior, found.to(prior.dtype), rate.to(prior.dtype))}

    def report(self, state: State) -> dict[str, Tensor]:
        """The smallest and the largest share of a class in the learned prior."""
        return {"smallest_class": state["prior"].min(), "largest_class": state["prior"].max()}


def masses(logits: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Return p normalised on each set, [B, K], and the logarithm of what it was divided by, [B]; constants."""
    return restricted_softmax(logits, candidates), log_set_probability(logits.detach(), candidates)


def sinkhorn(
    rows: Tensor, log_mass: Tensor, counted: Tensor, prior: Tensor, sharpness: float, iterations: int
) -> Tensor:
    """Return N diag(c) P^λ diag(r), [N, K], of P with these rows times their masses, where `counted` (0 or 1).

    Every row sums to 1; the mean of the counted rows goes to `prior` as iterations go on.
    """
    import torch

    # In double precision: where a set has only classes of which the prior allows less, r falls without end.
    powers = rows.double().pow(sharpness) * counted.unsqueeze(1)
    # What c is divided by belongs to P's rows; a factor that all of them share changes nothing, but may underflow.
    highest = log_mass.masked_fill(counted == 0, -torch.inf).max()
    columns = counted * torch.exp(sharpness * (log_mass - highest).clamp(max=0).double())
    for _ in range(iterations):
        scale = (prior.double() / (columns @ powers).clamp(min=LEAST)).clamp(min=LEAST)
        columns = counted / counted.sum() / (powers @ scale).clamp(min=LEAST)
    shared_out = powers * scale
    return (shared_out / shared_out.sum(1, keepdim=True).clamp(min=LEAST)).to(rows.dtype)


def rank_within(label: Tensor, value: Tensor, classes: int) -> Tensor:
    """Return how many examples of the same label have a smaller value, [B]; of equal ones the first is the smallest."""
    import torch

    order = torch.argsort(value, stable=True)
    order = order[torch.argsort(label[order], stable=True)]
    counts = label.bincount(minlength=classes)
    begins = counts.cumsum(0) - counts
    places = torch.arange(len(label), device=label.device)
    return torch.empty_like(places).index_copy(0, order, places - begins[label[order]])


ESTIMATORS: list[type[Estimator]] = [Solar]
