"""Conformal candidate cleaning: drop candidates that conformal prediction rejects.

Fuchs, Kalinke. Partial-Label Learning with Conformal Candidate Cleaning. UAI 2025.

    scores c_i = min_{j∈s_i} 1 - p_j(x_i)  on a calibration part of m examples
    p-value of j at x:  (1 + number of c_i ≥ 1 - (1-ε) p_j(x)) / (m + 1)
    candidates whose p-value is at most α + β leave, unless all would;   β = mean of Σ_{j∉s} p_j

p belongs to a perceptron that is trained on confidences, as `proden`, before the step; from epoch 10 on confidences are
those of the cleaned sets, scores are taken anew before each epoch, and ε = 2^{9-epoch}. At the end the sets are cleaned
once more.

Settled as in the authors' code: α = 0.05; the examples with a single candidate are the calibration part if they are a
fifth of all (at least 100), else a random fifth, which is also trained on where there are fewer than 1000 examples a
class. Settled here: the authors clean while the model that is reported trains; a transform has a small model of its
own, and hands on the sets. It has one hidden layer, and fewer epochs. Full sets are neither trained on nor cleaned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.machinery import target_loss, uniform
from wsl_toolkit import Transform, param

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wsl_toolkit import CandidateSets

FIRST = 10
"""The first epoch in which sets are cleaned."""
FEWEST, PART = 100, 0.2
"""The calibration part is this share of the examples, and at least so many."""
MANY = 1000
"""So many examples a class are enough to keep the calibration part out of training."""
LEARNING_RATE, WEIGHT_DECAY, BATCH = 0.01, 1e-4, 256
ROWS = 65_536


@attrs.frozen(kw_only=True)
class ConformalCleaning(Transform):
    """Of each set, without the candidates that a conformal predictor, trained on the sets, rejects."""

    name: ClassVar[str] = "conformal-cleaning"
    citation: ClassVar[str] = "Fuchs, Kalinke (UAI 2025)"

    level: float = param(0.05, help="α: how often a true label may be rejected, by the model's own measure", gt=0, lt=1)
    epochs: int = param(30, help="epochs of the small model", ge=1)
    hidden: int = param(100, help="width of its hidden layer", ge=1)

    def apply(self, x: Tensor, candidates: CandidateSets, rng: torch.Generator) -> CandidateSets:
        """Train the small model on cleaned sets, then clean them for good."""
        import torch

        from wsl_toolkit import CandidateSets

        mask = candidates.mask().clone()
        known = (~mask.all(1)).nonzero().flatten()
        if len(known) < 2:
            return candidates
        rows, sets = x.flatten(1)[known], mask[known]
        train, calibration = parts(sets, rng)
        model = Perceptron.drawn(rows.shape[1], self.hidden, sets.shape[1], rng, x.device)
        optimizer = torch.optim.Adam(model.weights, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        confidence = uniform(sets)
        for epoch in range(self.epochs):
            scores = self._scores(model, rows[calibration], sets[calibration])
            order = torch.randperm(len(train), generator=rng, device=rng.device).to(train.device)
            for batch in train[order].split(BATCH):
                logits = model.logits(rows[batch])
                optimizer.zero_grad()
                target_loss(logits, confidence[batch]).mean().backward()
                optimizer.step()
                kept = self.cleaned(logits.detach(), sets[batch], scores, epoch)
                confidence[batch] = restricted_softmax(logits, kept)
        with torch.no_grad():
            logits = torch.cat([model.logits(part) for part in rows.split(ROWS)])
            scores = self._scores(model, rows[calibration], sets[calibration])
            mask[known] = self.cleaned(logits, sets, scores, max(self.epochs, FIRST))
        return CandidateSets.from_mask(mask, candidates.class_names)

    def _scores(self, model: Perceptron, rows: Tensor, sets: Tensor) -> Tensor:
        """Return the calibration part's scores, in ascending order."""
        import torch

        with torch.no_grad():
            p = torch.cat([model.logits(part).softmax(1) for part in rows.split(ROWS)])
        return (1 - p).masked_fill(~sets, torch.inf).amin(1).sort().values

    def cleaned(self, logits: Tensor, sets: Tensor, scores: Tensor, epoch: int) -> Tensor:
        """Return the sets without what is rejected; as they are before the first epoch in which sets are cleaned."""
        import torch

        if epoch < FIRST:
            return sets
        p = logits.softmax(1)
        missed = (p * ~sets).sum(1).mean()
        strange = 1 - p * (1 - 0.5 ** (epoch - FIRST + 1))
        higher = len(scores) - torch.searchsorted(scores, strange.contiguous())
        kept = sets & ((higher + 1) / (len(scores) + 1) > self.level + missed)
        return torch.where(kept.any(1, keepdim=True), kept, sets)


def parts(sets: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the examples to train on and those to calibrate with, which may overlap."""
    import torch

    n, classes = sets.shape
    order = torch.randperm(n, generator=rng, device=rng.device).to(sets.device)
    count = min(n, max(FEWEST, int(PART * n)))
    single = (sets.sum(1) == 1).nonzero().flatten()
    calibration = single if len(single) >= count else order[n - count :]
    return (order if n / classes < MANY else order[: n - count]), calibration


@attrs.frozen(eq=False)
class Perceptron:
    """A network with one hidden layer, as plain tensors."""

    weights: tuple[Tensor, ...]

    @classmethod
    def drawn(cls, width: int, hidden: int, classes: int, rng: torch.Generator, device: torch.device) -> Perceptron:
        """Draw its first weights from a stream."""
        import torch

        def layer(inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
            weight = torch.randn(inputs, outputs, generator=rng, device=rng.device) / inputs**0.5
            return weight.to(device).requires_grad_(), torch.zeros(outputs, device=device, requires_grad=True)

        return cls((*layer(width, hidden), *layer(hidden, classes)))

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of some rows."""
        first, first_bias, second, second_bias = self.weights
        return (rows @ first + first_bias).relu() @ second + second_bias


TRANSFORMS: list[type[Transform]] = [ConformalCleaning]
