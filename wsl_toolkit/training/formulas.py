"""The formulas of the metrics: pure functions of logits, candidate sets and labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wsl_toolkit.components import Estimator, State

if TYPE_CHECKING:
    from torch import Tensor  # commands that only read the table of metrics do not import torch


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the share of examples whose most likely class is the true one; unknown labels (-1) do not count."""
    known = labels >= 0
    return ((logits.argmax(1) == labels) & known).sum() / known.sum()


def class_recalls(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the accuracy on the examples of each class, 0 where there are none, and whether there are some."""
    import torch

    members = (labels.unsqueeze(1) == torch.arange(logits.shape[1], device=logits.device)).to(logits.dtype)
    hits = (logits.argmax(1) == labels).to(logits.dtype)
    sizes = members.sum(0)
    return (hits.unsqueeze(1) * members).sum(0) / sizes.clamp(min=1), sizes > 0


def mean_recall(logits: Tensor, labels: Tensor, chosen: Tensor | None = None) -> Tensor:
    """Return the mean over classes (those of the mask `chosen`) of the accuracy on each: balanced accuracy."""
    recalls, there = class_recalls(logits, labels)
    counted = there if chosen is None else there & chosen
    return (recalls * counted).sum() / counted.sum()


def shots(class_counts: Tensor) -> dict[str, Tensor]:
    """Return masks of the classes with many, a medium number of and few training examples: thirds, by rank.

    The largest and the smallest third are ⌊K/3⌋ classes each, at least one; the rest is in between.
    """
    third = max(1, len(class_counts) // 3)
    rank = class_counts.argsort(descending=True, stable=True).argsort()
    many, few = rank < third, rank >= len(class_counts) - third
    return {"many": many, "medium": ~many & ~few, "few": few}


def absolute_errors(logits: Tensor, labels: Tensor, values: Tensor) -> Tensor:
    """Return how far the number of the most likely class is from that of the true one; unknown labels are left out."""
    known = labels >= 0
    return (values[logits.argmax(1)[known]] - values[labels[known]]).abs()


def covering_rate(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return CR, the share of examples whose most likely class is a candidate."""
    return candidates.gather(1, logits.argmax(1, keepdim=True)).float().mean()


def candidate_confidence(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return r_j = p_j 1{j in s} / Σ_{k in s} p_k (Theorem 1), stable for any logits."""
    return logits.masked_fill(~candidates, -math.inf).softmax(dim=-1)


def approximated_accuracy(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return AA, the mean confidence that the predicted class is the true one given the set."""
    r = candidate_confidence(logits, candidates)
    return r.gather(1, logits.argmax(1, keepdim=True)).mean()


def true_label_confidence(logits: Tensor, candidates: Tensor, labels: Tensor) -> Tensor:
    """Return the mean confidence r_y that a model gives the true label within its set; unknown labels do not count."""
    known = labels >= 0
    r = candidate_confidence(logits, candidates).gather(1, labels.clamp(min=0)[:, None])[:, 0]
    return (r * known).sum() / known.sum()


def held_out_risk(estimator: Estimator, logits: Tensor, candidates: Tensor, shared: State) -> Tensor:
    """Return the estimator's own risk on examples it holds no state for: state comes from the same logits."""
    state = {**shared, **estimator.init_state(candidates)}
    state.update(estimator.update(logits, candidates, state))
    return estimator.objective(logits, candidates, state)
