"""Cross selection: two networks choose confident labels for each other.

Tian, Wei, Wang, Feng. CroSel: Cross Selection of Confident Pseudo Labels for Partial-Label Learning. CVPR 2024.

    a network chooses an example if its likeliest class was the same after each of the last k epochs, is a candidate,
    and had a probability whose mean over these epochs is above γ; the class is the label that it gives
    L of each network = CE(label, p) over the examples that the other one chose
                        + λ (1 - share of the examples that are chosen) CE(mixed targets, mixed p)
    targets: of a weak view p of the strong one normalised on s, and of a strong view that of the weak one; the views of
             all examples are mixed with each other by λ' ~ Beta(a, a), λ' ≥ 1/2 (co-mix)

In the first epochs L is -log Σ_{j∈s} p_j. Both networks predict together.

Settled as in the authors' code: p of the choice comes from a pass over all examples after each epoch; the share is the
mean of both networks' shares; targets are not sharpened (its temperature has no effect there). Mixing is on, as the
paper describes it, though that code has it behind a flag: `mixing` = 0 turns it off. Settled here: they draw batches
of chosen examples beside those of all, here the chosen ones of a batch are learned from, which has the same mean; the
pass after an epoch and the first epochs see no other augmentation than the weak view's; predictions are the mean of
probabilities, theirs of logits. A history keeps the likeliest class and its probability, which is all that is asked of
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import AugmentedEstimator, among, target_loss
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import cross_entropy, log_set_probability, softmax

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets

NETWORKS = ("", "second_")
"""The prefixes of what belongs to each network."""


@attrs.frozen(kw_only=True)
class CroSel(AugmentedEstimator):
    """Two networks; each learns the labels that the other has been sure of for some epochs, and all mixed views.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "crosel"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Tian et al. (CVPR 2024)"
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "two_networks", "epoch", "all_logits"})
    stackable: ClassVar[bool] = False

    warm_up: int = param(10, help="epochs before labels are chosen", ge=0)
    history: int = param(3, help="k: epochs that a network must have been sure for", ge=1)
    threshold: float = param(0.9, help="γ: what the mean probability must be above", ge=0, lt=1)
    weight: float = param(1.0, help="λ, the weight of the mixed views while nothing is chosen", ge=0)
    mixing: float = param(0.75, help="a: how evenly views are mixed; 0: not at all", ge=0)

    def extend_two(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Put views and mixtures of them around two networks."""
        from wsl_methods.modules import Crossed

        return Crossed(build(), self.needs, second=build(), mixing=self.mixing, **self.views())

    def init_state(self, candidates: Tensor) -> State:
        """Nobody has been sure of anything."""
        import torch

        def empty(dtype: torch.dtype) -> Tensor:
            return torch.zeros(len(candidates), self.history, dtype=dtype)

        kinds = {"likeliest": torch.int64, "certainty": torch.float32}
        return {f"{prefix}{name}": empty(dtype) for prefix in NETWORKS for name, dtype in kinds.items()}

    def init_shared(self, candidates: CandidateSets) -> State:
        """No example is chosen."""
        import torch

        return {"chosen_share": torch.zeros(())}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Both networks' losses, weighed so that their mean is the sum of both L."""
        import torch

        state = {**state, "logits": logits}
        first = sum(-log_set_probability(state[f"{prefix}logits"], candidates) for prefix in NETWORKS)
        later = sum(
            self._told(own, other, candidates, state)
            + self.weight * (1 - state["chosen_share"]).to(logits.dtype) * self._mixed(own, candidates, state)
            for own, other in (NETWORKS, NETWORKS[::-1])
        )
        return torch.where(state["epoch"] < self.warm_up, first, later)

    def _told(self, own: str, other: str, candidates: Tensor, state: State) -> Tensor:
        """CE(label, p) of the examples that the other network chose."""
        logits = state[f"{own}logits"]
        label = state[f"{other}likeliest"][:, -1:]
        losses = cross_entropy(logits).gather(1, label).squeeze(1)
        return among(self.chosen(other, candidates, state), logits) * losses

    def _mixed(self, own: str, candidates: Tensor, state: State) -> Tensor:
        """CE(mixed targets, mixed p), the mean of an example's two views."""
        import torch

        swapped = (f"{own}fixed_view_logits", f"{own}fixed_logits")
        targets = torch.cat([restricted_softmax(state[name], candidates) for name in swapped])
        share, partner = state[f"{own}mixed_share"], state[f"{own}mixed_partner"]
        mixed = torch.cat([state[f"{own}mixed_logits"], state[f"{own}mixed_view_logits"]])
        losses = target_loss(mixed, share * targets + (1 - share) * targets[partner])
        return losses.view(2, -1).mean(0)

    def chosen(self, prefix: str, candidates: Tensor, state: State) -> Tensor:
        """Return which examples a network has been sure enough of, [B]."""
        likeliest, certainty = state[f"{prefix}likeliest"], state[f"{prefix}certainty"]
        last = likeliest[:, -1:]
        steady, allowed = (likeliest == last).all(1), candidates.gather(1, last).squeeze(1)
        return steady & allowed & (certainty.mean(1) > self.threshold)

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Let histories forget their oldest epoch and take this one; count who is chosen."""
        import torch

        new: State = {}
        for prefix in NETWORKS:
            p = softmax(state[f"{prefix}all_logits"])
            now = dict(zip(("certainty", "likeliest"), p.max(1), strict=True))
            for name, value in now.items():
                old = state[f"{prefix}{name}"]
                new[f"{prefix}{name}"] = torch.cat([old[:, 1:], value.unsqueeze(1).to(old.dtype)], dim=1)
        shares = [self.chosen(prefix, candidates, new).to(state["chosen_share"].dtype).mean() for prefix in NETWORKS]
        return {**new, "chosen_share": torch.stack(shares).mean()}

    def report(self, state: State) -> dict[str, Tensor]:
        """The share of the examples that are chosen."""
        return {"chosen": state["chosen_share"]}


ESTIMATORS: list[type[Estimator]] = [CroSel]
