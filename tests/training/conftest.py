"""A maker of trainers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small_problems import MakeTrainer, estimator, inputs_and_candidates, network

from wsl_toolkit.components import Estimator
from wsl_toolkit.data.inputs import Inputs
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.schedules import make_scheduler
from wsl_toolkit.training.trainer import Trainer


@pytest.fixture
def make_trainer() -> MakeTrainer:
    """Return a maker of trainers; everything random comes from `seed` alone."""

    def make(
        method: Estimator | str = "ppl",
        kind: str = "linear",
        *,
        problem: tuple[Any, CandidateSets] | None = None,
        optimizer: str = "sgd",
        scheduler: str | None = None,
        schedule: dict[str, Any] | None = None,
        lr: float = 0.05,
        weight_decay: float = 1e-3,
        batch_size: int = 32,
        seed: int = 0,
        epochs: int = 6,
        weights: torch.Tensor | None = None,
        **options: Any,
    ) -> Trainer:
        x, candidates = problem if problem is not None else inputs_and_candidates()
        model = network(
            kind, math.prod(x.shape if isinstance(x, Inputs) else x.shape[1:]), candidates.num_classes, seed
        )
        torch.manual_seed(seed + 1)
        chosen = make_optimizer(optimizer, model.parameters(), lr, weight_decay)
        by_step = schedule is not None and schedule.get("every") == "step"
        trainer = Trainer(
            model=model,
            risk=Risk(estimator(method) if isinstance(method, str) else method, candidates, weights=weights),
            inputs=x,
            optimizer=chosen,
            scheduler=None if by_step else make_scheduler(scheduler, chosen, epochs, schedule),
            batch_size=batch_size,
            shuffle=torch.Generator().manual_seed(seed + 2),
            **{"evaluate": lambda model, risk: {}, **options},
        )
        if by_step:
            trainer.schedule_steps(make_scheduler(scheduler, chosen, epochs * trainer.steps_per_epoch, schedule))
        return trainer

    return make
