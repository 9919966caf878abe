"""A head and a tail classifier that work together, for classes of very different size.

Jia, Peng, Wang, Zhang. Long-Tailed Partial Label Learning by Head Classifier and Tail Classifier Cooperation. AAAI 2024
(HTC).

    f, g: two last layers on the same features, the head and the tail classifier;  p = softmax f,  q = softmax g
    r ← (1-μ) r + μ q normalised on s;     π: the mean of all examples' r, after each epoch
    labels:  r for the head;  softmax(f - t log π) for the tail
    chosen:  of the examples whose label is largest at j, the ⌈B π_j ρ⌉ of the head, ⌈B ρ/K⌉ of the tail, with the
             smallest cross-entropy between label and the classifier (at least one)
    L of each classifier = CE(r, p) + η (CE(label, p') + CE(mixed label, mixed p))     means over all, then over the
                           chosen;  p' belongs to a strong view, and so q for the tail
    L = both + ω CE(r, softmax(w₁ a + w₂ b)),   a = softmax(f - log(π + 1e-5)),  b = q,  both constants
        w = softmax(leaky ReLU(A [a, b])) made of length one;  A is learned, and predictions are argmax w₁ a + w₂ b

η and ρ grow over `ramp` epochs; in the first epoch L of each classifier is CE(r, p), and ω grows from 0.

Settled as in the authors' code: labels are constants of the weak view; t = 2, μ = 0.6. Settled here: ω grows over
`fusion_ramp` epochs, theirs over all epochs of a run, which an estimator is not told; their 800 is the default. Pairs
for mixup are drawn from the whole batch, one draw for both classifiers, and those of two chosen examples count. A class
that is in no set has no part in the tail's labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import AugmentedEstimator, among, target_loss, uniform
from wsl_methods.solar import rank_within
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import confined

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets


@attrs.frozen(kw_only=True)
class HeadAndTail(AugmentedEstimator):
    """Two classifiers on the same features, for common and for rare classes, and one that weighs their answers.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "htc"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Jia et al. (AAAI 2024)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"confidence"})
    needs: ClassVar[frozenset[str]] = frozenset({"weak_view", "second_view", "mixed", "features", "epoch"})
    stackable: ClassVar[bool] = False

    adjustment: float = param(2.0, help="t: how much the tail's labels favour rare classes", ge=0)
    confidence_rate: float = param(0.6, help="μ: how fast confidences follow the tail classifier", ge=0, le=1)
    weight: float = param(0.9, help="η, the weight of the chosen examples that the ramp ends with", ge=0)
    chosen_share: tuple[float, ...] = param((0.2, 0.6), help="ρ at the start and at the end of the ramp", ge=0, le=1)
    ramp: int = param(50, help="epochs over which η and ρ grow", ge=1)
    fusion_weight: float = param(0.5, help="ω that its ramp ends with: how much weighing the answers counts", ge=0)
    fusion_ramp: int = param(800, help="epochs over which ω grows", ge=1)

    def extend(self, network: nn.Module) -> nn.Module:
        """Put views, a second last layer and the weighing of both answers around the network."""
        from wsl_methods.modules import HeadedTwice

        return HeadedTwice(network, self.needs, **self.views())

    def init_state(self, candidates: Tensor) -> State:
        """All candidates alike."""
        return {"confidence": uniform(candidates)}

    def init_shared(self, candidates: CandidateSets) -> State:
        """Equal shares of the classes, which nothing is made of before the first epoch has ended."""
        import torch

        classes = candidates.num_classes
        return {"share": torch.full((classes,), 1 / classes)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Both classifiers' losses and that of their fusion, weighed so that the mean is L."""
        share = state["share"]
        state = {**state, "logits": logits}
        head = self._loss_of("", state["confidence"], share, state)
        tail = self._loss_of("tail_", self._tail_labels(state), share.new_full(share.shape, 1 / len(share)), state)
        fused = target_loss(state["fused_logits"], state["confidence"])
        return head + tail + self.fusion_weight * grown(state, self.fusion_ramp) * fused

    def _tail_labels(self, state: State) -> Tensor:
        """softmax(f - t log π), [B, K]."""
        import torch

        share = state["share"]
        log_share = share.clamp(min=torch.finfo(share.dtype).tiny).log()
        adjusted = state["fixed_logits"] - self.adjustment * log_share
        return torch.softmax(confined(adjusted, (share > 0).expand_as(adjusted)), dim=-1)

    def _loss_of(self, prefix: str, label: Tensor, share: Tensor, state: State) -> Tensor:
        """L of one classifier."""
        import torch

        logits, fixed = state[f"{prefix}logits"], state[f"{prefix}fixed_logits"]
        first, last = self.chosen_share[0], self.chosen_share[-1]
        room = len(label) * share * (first + (last - first) * grown(state, self.ramp))
        place = label.argmax(-1)
        rank = rank_within(place, target_loss(fixed, label), label.shape[-1])
        chosen = rank < room.ceil().clamp(min=1)[place]
        part, partner = state["mixed_share"], state["mixed_partner"]
        mixed = target_loss(state[f"{prefix}mixed_logits"], part * label + (1 - part) * label[partner])
        sure = among(chosen, logits) * target_loss(state[f"{prefix}view_logits"], label)
        sure = sure + among(chosen & chosen[partner], logits) * mixed
        told = target_loss(logits, state["confidence"])
        return torch.where(state["epoch"] < 1, told, told + self.weight * grown(state, self.ramp) * sure)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """Let confidences follow the tail classifier."""
        import torch

        old = state["confidence"]
        said = restricted_softmax(state["tail_logits"], candidates).to(old.dtype)
        return {"confidence": torch.lerp(old, said, self.confidence_rate)}

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """π: the mean of all confidences."""
        return {"share": (state["confidence"].mean(0) / state["confidence"].mean(0).sum()).to(state["share"].dtype)}

    def report(self, state: State) -> dict[str, Tensor]:
        """The smallest and the largest share of a class."""
        return {"smallest_class": state["share"].min(), "largest_class": state["share"].max()}


def grown(state: State, ramp: int) -> Tensor:
    """Return what share of its ramp is behind."""
    return (state["epoch"] / ramp).clamp(max=1)


ESTIMATORS: list[type[Estimator]] = [HeadAndTail]
