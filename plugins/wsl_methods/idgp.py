"""The decompositional generation process.

Qiao, Xu, Geng. Decompositional Generation Process for Instance-Dependent Partial Label Learning. ICLR 2023.

A set comes about in two steps: the true label, from a categorical law p = softmax(f(x)/T₁), and then each other label
by itself, with probability q_j = σ(g_j(x)/T₂). Two networks, f and g, are trained, each with what the other implies:

    L_f = α CE(d, p) + β CE(c, p) + μ(t) KL(d ‖ p¹)
    L_g = θ BCE(b, q) + γ [-Σ_j d̃_j log(1 - q_j) + BCE(s, q)] + μ(t) Σ_j b_j log(b_j / q¹_j)
    c_j ∝ (1 - q̃_j)/q̃_j on s,   q̃ = 1 - q at argmax_{k∈s} d_k, else q      what g's odds say of the true label
    d̃_j = p_j / Σ_{k∈s} p_k on s                                            what f says, a constant for g
    d ← d̃,   b ← q on s, 0 off it                                            from the weak view; at first 1/|s| and s

each summed over a weak view and two strong ones; p¹ and q¹ have temperature 1; μ(t) = min(t/100, 1), t epochs after the
warm-up, in which CE(d, p) and BCE(b, q) are trained alone. BCE is summed over the classes.

Settled as in the authors' code; their two optimisers are here the one that trains L_f + L_g, which is the same if their
settings are, for neither loss has a gradient in the other's network. Their warm-up trains f first and g after it, here
both at once. g has the backbone's shape and starts anew. c is computed from the logits, as a softmax. The
authors search weights and temperatures for each data set, between 0.001 and 100, and stop early by validation accuracy:
for CIFAR-10 they have α = 10, β = 1, θ = 0.001, γ = 0.01, T₁ ≈ 2, T₂ ≈ 6. In their code, in PLENCH and here all are 1
unless given. With β = α, c may mislead f as soon as the warm-up ends where sets do not come about as assumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.cr_dpll import all_views, divergences
from wsl_methods.machinery import AugmentedEstimator, one_hot, target_loss, top_candidate, uniform
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import lifted

if TYPE_CHECKING:
    from torch import Tensor, nn


@attrs.frozen(kw_only=True)
class Decompositional(AugmentedEstimator):
    """A network for the true label and another for the labels that come with it, each the other's teacher.

    Maximum a posteriori under the generation process that its authors assume; no promise about bias is made.
    """

    name: ClassVar[str] = "idgp"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Qiao, Xu, Geng (ICLR 2023)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence", "chance"})
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "third_view", "epoch"})
    stackable: ClassVar[bool] = False
    contract: ClassVar[dict[str, Any]] = {"epochs": 20, "learning_rate": 0.01}  # six losses of three views are summed

    warm_up: int = param(10, help="epochs in which the networks are trained on their own", ge=0)
    ramp: int = param(100, help="epochs after the warm-up over which the weight of consistency grows from 0 to 1", ge=1)
    own_weight: float = param(1.0, help="α, the weight of what f has learned itself", ge=0)
    odds_weight: float = param(1.0, help="β, the weight of what g's odds say of the true label", ge=0)
    chance_weight: float = param(1.0, help="θ, the weight of what g has learned itself", ge=0)
    taught_weight: float = param(1.0, help="γ, the weight of what f and the set say to g", ge=0)
    label_temperature: float = param(1.0, help="T₁, the temperature of f's probabilities", gt=0)
    chance_temperature: float = param(1.0, help="T₂, the temperature of g's probabilities", gt=0)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put views and a second network beside the first."""
        from wsl_methods.modules import Twin

        return Twin(network, self.needs, **self.views())

    def init_state(self, candidates: Tensor) -> State:
        """d: all candidates alike; b: certain of all of them."""
        import torch

        return {"confidence": uniform(candidates), "chance": candidates.to(torch.get_default_dtype())}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """L_f + L_g of every example."""
        import torch

        raw, raw_twins = torch.stack(all_views(logits, state)), lifted(twin_views(state))
        views, twins = raw / self.label_temperature, raw_twins / self.chance_temperature
        confidence, chance = state["confidence"], state["chance"]
        own = target_loss(views, confidence).sum(0)
        own_chance = bernoulli(twins, chance).sum((0, -1))
        odds = target_loss(views, twin_odds(twins, confidence, candidates)).sum(0)
        likely = restricted_softmax(views, candidates.expand_as(views))
        # log(1 - q) = log σ(-g) and log q = log σ(g).
        taught = (likely * torch.nn.functional.softplus(twins) + bernoulli(twins, candidates.to(twins))).sum((0, -1))
        matched = torch.xlogy(chance, chance) + chance * torch.nn.functional.softplus(-raw_twins)
        consistent = divergences(confidence, tuple(raw)) + matched.sum((0, -1))
        since = state["epoch"] - self.warm_up
        later = (
            self.own_weight * own
            + self.odds_weight * odds
            + self.chance_weight * own_chance
            + self.taught_weight * taught
            + (since / self.ramp).clamp(min=0, max=1) * consistent
        )
        return torch.where(since < 0, own + own_chance, later)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """d and b from the weak view."""
        import torch

        chance = torch.sigmoid(lifted(state["twin_logits"].detach()) / self.chance_temperature) * candidates
        return {"confidence": restricted_softmax(logits / self.label_temperature, candidates), "chance": chance}


def twin_views(state: State) -> Tensor:
    """Return the second network's logits of all views, [3, B, K]."""
    import torch

    return torch.stack([state["twin_logits"], state["twin_view_logits"], state["twin_third_logits"]])


def twin_odds(twins: Tensor, confidence: Tensor, candidates: Tensor) -> Tensor:
    """Return c of every view, a constant: the odds (1 - q̃)/q̃ = exp(-g̃) normalised on the candidates."""
    pseudo = one_hot(top_candidate(confidence, candidates), twins)
    return restricted_softmax((2 * pseudo - 1) * twins, candidates.expand_as(twins))


def bernoulli(logits: Tensor, target: Tensor) -> Tensor:
    """Return -t log σ(g) - (1-t) log(1 - σ(g)) for every class."""
    import torch

    return torch.nn.functional.softplus(logits) - target * logits


ESTIMATORS: list[type[Estimator]] = [Decompositional]
