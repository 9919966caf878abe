"""Many models at once: trainers that share data, architecture and batch size take every step together.

A grid of learning rates and weight decays, several seeds, several parameters of an estimator: each model keeps its own
trajectory, the one it would have alone, and all of them cost little more than the largest matrix product.

    for outcomes in train_stacked(trainers, until=epochs): …
"""

from __future__ import annotations

from wsl_toolkit.training.stacking.grouping import Group, group, models_that_fit, why_it_does_not_pay, why_not
from wsl_toolkit.training.stacking.trainer import Outcome, Stack
from wsl_toolkit.training.stacking.training import train_stacked

__all__ = ["Group", "Outcome", "Stack", "group", "models_that_fit", "train_stacked", "why_it_does_not_pay", "why_not"]
