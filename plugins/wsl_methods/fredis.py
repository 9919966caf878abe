"""Fusion of refinement and disambiguation, for sets that may miss the true label.

Qiao, Xu, Lv, Ren, Geng. FREDIS: A Fusion Framework of Refinement and Disambiguation for Unreliable Partial Label
Learning. ICML 2023.

    L = λ Σ_{v=0}^{2} KL(r ‖ p^v) - α Σ_v Σ_{j∉S} log(1 - p^v_j)
    r_j ← Π_v (p^v_j)^{1/3} normalised on S                              as in CR-DPLL, with S instead of s
    every `interval` epochs, with D_j = max_k p_k - p_j for the weak view's last p, over all examples and labels:
        refine:        labels off S with D_j < θ enter it, at most `changes` of them, drawn at random
        disambiguate:  δ falls by steps of ε_δ until `ratio` times as many labels of S have D_j > δ; these leave it,
                       at most `ratio`·`changes`, drawn at random
        r ← p normalised on S;  if fewer than `changes` marks changed:  θ ← θ + ε_θ,  δ ← δ - ε_δ

S begins as the candidate set and may grow and shrink.

Settled: in the authors' code the draw is among all labels with D_j < θ (or > δ), also those that need not move; here
only among those that move, so that as many move as may. A set that would become empty stays as it was, as their code
means to do (it compares a method with 0). Steps of δ are counted at once instead of one by one. They begin from
networks trained elsewhere; `warm_up` is the number of epochs before the first change of a set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_methods.cr_dpll import all_views, divergences, geometric_mean
from wsl_methods.machinery import AugmentedEstimator, uniform
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import log_not, softmax

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wsl_toolkit import CandidateSets

LARGEST_ENTRY, SMALLEST_EXIT = 0.9, 0.1
"""θ grows and δ falls while θ is below the first and δ above the second."""


@attrs.frozen(kw_only=True)
class Fredis(AugmentedEstimator):
    """Consistency between views on sets that likely labels enter and unlikely ones leave.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "fredis"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Qiao et al. (ICML 2023)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "third_view", "epoch", "seed"})
    stackable: ClassVar[bool] = False

    weight: float = param(1.0, help="λ, the weight of the consistency", ge=0)
    outside_weight: float = param(1.0, help="α, the weight of the loss off the set", ge=0)
    entry: float = param(1e-6, help="θ to begin with: labels this close to the top one may enter", gt=0, lt=1)
    entry_step: float = param(1e-6, help="ε_θ: by how much θ grows when little changes", ge=0)
    exit: float = param(1.0, help="δ to begin with: labels this far from the top one may leave", gt=0, le=1)
    exit_step: float = param(1e-6, help="ε_δ: the steps in which δ falls", gt=0)
    ratio: int = param(2, help="labels that leave for one that enters", ge=1)
    changes: int = param(500, help="the most labels that enter at once", ge=1)
    interval: int = param(20, help="epochs between changes of sets", ge=1)
    warm_up: int = param(20, help="epochs before the first change", ge=0)

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike, the candidate set, and equal probabilities."""
        import torch

        return {
            "confidence": uniform(candidates),
            "members": candidates.clone(),
            "probability": torch.full(candidates.shape, 1 / candidates.shape[-1]),
        }

    def init_shared(self, candidates: CandidateSets) -> State:
        """θ and δ."""
        import torch

        # In double precision, for the steps are small beside their values.
        return {name: torch.tensor(getattr(self, name), dtype=torch.float64) for name in ("entry", "exit")}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """The divergences and the losses off the set, of every example."""
        import torch

        views = all_views(logits, state)
        outside = -log_not(torch.stack(views)).masked_fill(state["members"], 0.0).sum((0, -1))
        return self.weight * divergences(state["confidence"], views) + self.outside_weight * outside

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """r from all views, p from the weak one."""

        return {
            "confidence": geometric_mean(all_views(logits, state), state["members"]),
            "probability": softmax(logits.detach()),
        }

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Let labels enter and leave, if it is time."""
        import torch

        if int(state["epoch"]) < self.warm_up or int(state["epoch"]) % self.interval:
            return {}
        rng = torch.Generator().manual_seed(int(state["seed"]))
        before, p = state["members"], state["probability"]
        distance = p.amax(1, keepdim=True) - p
        entering = some(~before & (distance < state["entry"]), self.changes, rng)
        lower = self._lowered(distance[before], self.ratio * int(entering.sum()), state["exit"])
        leaving = some(before & (distance > lower), self.ratio * self.changes, rng)
        members = (before | entering) & ~leaving
        members = torch.where(members.any(1, keepdim=True), members, before)
        few = (members != before).sum() < self.changes
        grows = few & (state["entry"] < LARGEST_ENTRY) & (lower > SMALLEST_EXIT)
        kept = p.clamp(min=torch.finfo(p.dtype).tiny) * members
        return {
            "members": members,
            "confidence": kept / kept.sum(1, keepdim=True),
            "entry": torch.where(grows, state["entry"] + self.entry_step, state["entry"]),
            "exit": torch.where(grows, lower - self.exit_step, lower),
        }

    def _lowered(self, distances: Tensor, wanted: int, now: Tensor) -> Tensor:
        """Return δ after as many steps as it takes for `wanted` of the set's labels (or all of them) to exceed it."""
        import torch

        if wanted == 0:
            return now
        bar = distances.sort(descending=True).values[min(wanted, len(distances)) - 1]
        steps = torch.floor((now.double() - bar.double()) / self.exit_step) + 1
        return torch.where(now < bar, now.double(), now.double() - steps * self.exit_step).to(now.dtype)


def some(marks: Tensor, most: int, rng: torch.Generator) -> Tensor:
    """Return the marks, or as many of them as allowed, drawn at random."""
    import torch

    places = marks.flatten().nonzero().flatten()
    if len(places) <= most:
        return marks
    chosen = places[torch.randperm(len(places), generator=rng)[:most].to(places.device)]
    kept = torch.zeros(marks.numel(), dtype=torch.bool, device=marks.device)
    kept[chosen] = True
    return kept.view(marks.shape)


ESTIMATORS: list[type[Estimator]] = [Fredis]
