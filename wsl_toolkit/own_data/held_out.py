"""How a model does on examples that neither trained nor chose it."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import calibration
from wsl_toolkit.own_data.fitted import Fitted
from wsl_toolkit.own_data.learning import known_labels
from wsl_toolkit.training import formulas


@attrs.frozen(kw_only=True)
class HeldOut:
    """How well a model does on examples that neither trained nor chose it."""

    examples: int
    covering_rate: float
    approximated_accuracy: float
    set_log_loss: float
    accuracy: float | None
    """Computed with the true labels that are known, None where none is."""
    known_labels: int
    calibration_error: float | None = None
    """Of the probabilities as they are given; None where fewer than 20 true labels are known."""
    calibration_error_before: float | None = None
    """The same with every temperature at 1."""
    predicted: Tensor = attrs.field(eq=False, repr=False)
    """The most likely class of each held-out example."""
    labels: Tensor = attrs.field(eq=False, repr=False)
    """Their true labels, -1 where one is not known."""
    confidence: Tensor | None = attrs.field(default=None, eq=False, repr=False)
    right: Tensor | None = attrs.field(default=None, eq=False, repr=False)
    """Of the examples whose true label is known: the probability of the predicted class, and whether it is right."""

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the report for JSON."""
        return attrs.asdict(self, filter=lambda field, _: field.name not in OF_EXAMPLES)


OF_EXAMPLES = ("predicted", "labels", "confidence", "right")
"""What the report knows of single examples."""


def evaluate(fitted: Fitted, data: Data, candidates: CandidateSets, index: Tensor) -> HeldOut:
    """Report on examples that had no part in fitting."""
    logits = fitted.logits(data.x, index)
    informative = (candidates.sizes[index] < candidates.num_classes).nonzero().flatten()
    mask = candidates.mask(index[informative]).cpu()
    labels = known_labels(data)
    known = None if labels is None else labels[index]
    count = 0 if known is None else int((known >= 0).sum())
    nothing = float("nan")
    best, predicted = logits.softmax(1).max(1)
    seen = None if known is None else known >= 0
    return HeldOut(
        predicted=predicted,
        labels=torch.full_like(predicted, -1) if known is None else known,
        confidence=None if seen is None else best[seen],
        right=None if seen is None or known is None else predicted[seen] == known[seen],
        examples=len(index),
        covering_rate=float(formulas.covering_rate(logits[informative], mask)) if len(mask) else nothing,
        approximated_accuracy=float(formulas.approximated_accuracy(logits[informative], mask))
        if len(mask)
        else nothing,
        accuracy=float(formulas.accuracy(logits, known)) if known is not None and count else None,
        known_labels=count,
        set_log_loss=calibration.set_log_loss(logits[informative], mask) if len(mask) else nothing,
        calibration_error=None if known is None else calibration.calibration_error(logits.softmax(1), known),
        calibration_error_before=None
        if known is None
        else calibration.calibration_error(fitted.uncalibrated().logits(data.x, index).softmax(1), known),
    )
