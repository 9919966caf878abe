"""Accuracy, covering rate and approximated accuracy; which of them read clean labels is in their names."""

from __future__ import annotations

import torch
from torch import Tensor

from wsl_toolkit.components import Estimator, State

CLEAN_LABEL_METRICS = (
    "test/accuracy",
    "validation/oracle_accuracy",
    "validation/oracle_confidence",
    "train/oracle_accuracy",
)
"""Metrics that were computed with true labels; none may select a model except the ones marked oracle."""


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the share of examples whose most likely class is the true one; unknown labels (-1) do not count."""
    known = labels >= 0
    return ((logits.argmax(1) == labels) & known).sum() / known.sum()


def covering_rate(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return CR, the share of examples whose most likely class is a candidate."""
    return candidates.gather(1, logits.argmax(1, keepdim=True)).float().mean()


def candidate_confidence(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return r_j = p_j 1{j in s} / Σ_{k in s} p_k (Theorem 1), stable for any logits."""
    return torch.softmax(logits.masked_fill(~candidates, -torch.inf), dim=-1)


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
