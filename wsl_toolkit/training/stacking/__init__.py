"""Many models at once: trainers that share data, architecture and batch size take every step together.

A grid of learning rates and weight decays, several seeds, several parameters of an estimator: each model keeps its own
trajectory, the one it would have alone, and all of them cost little more than the largest matrix product.

    stack = Stack(trainers)
    outcomes = stack.train_epoch()
"""

from __future__ import annotations

from wsl_toolkit.training.stacking.grouping import Group, group, models_that_fit, why_it_does_not_pay, why_not
from wsl_toolkit.training.stacking.stack import Stack

__all__ = ["Group", "Stack", "group", "models_that_fit", "why_it_does_not_pay", "why_not"]
