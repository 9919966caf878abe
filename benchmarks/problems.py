"""Synthetic problems of the sizes that matter: speed does not depend on what the pixels show."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator
from wsl_toolkit.data.inputs import as_inputs
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.calibration import Subject, chosen
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.plan import base_plan, forward_operations
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.trainer import Trainer

BATCH = 256
EPOCHS = 100
"""So many would be trained, for which a plan is measured once in a process."""
LR, WEIGHT_DECAY, MOMENTUM = 1e-3, 1e-5, 0.9


@attrs.frozen(kw_only=True, eq=False)
class Synthetic:
    """Inputs and candidate sets; each wrong label is a candidate with probability one half."""

    x: Tensor
    candidates: CandidateSets

    @classmethod
    def draw(cls, n: int, shape: tuple[int, ...], num_classes: int, seed: int = 0) -> Synthetic:
        """Draw a problem."""
        rng = torch.Generator().manual_seed(seed)
        mask = torch.rand(n, num_classes, generator=rng) < 0.5
        rows = torch.arange(n)
        mask[rows, torch.randint(num_classes, (n,), generator=rng)] = True
        mask[rows, (mask.int().argmax(1) + 1) % num_classes] &= mask.sum(1) < num_classes  # no full sets
        return cls(x=torch.rand(n, *shape, generator=rng), candidates=CandidateSets.from_mask(mask))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.x.shape[1:])


def backbone(name: str, problem: Synthetic, seed: int = 0, **values: object) -> nn.Module:
    torch.manual_seed(seed)
    component = load_plugins().registry.create("backbone", name, values)
    network: nn.Module = component.build(problem.input_shape, problem.candidates.num_classes)
    return network


def estimator(name: str, **values: object) -> Estimator:
    created: Estimator = load_plugins().registry.create("estimator", name, values)
    return created


def trainer(
    problem: Synthetic,
    network: str,
    method: Estimator,
    *,
    lr: float = LR,
    weight_decay: float = WEIGHT_DECAY,
    seed: int = 0,
    batch: int = BATCH,
    **values: object,
) -> Trainer:
    """Put together what a run would; nothing is evaluated, because only training is measured."""
    model = backbone(network, problem, seed, **values)
    risk = Risk(method, problem.candidates)
    base = base_plan(model, problem.x)
    subject = Subject(
        model=model,
        risk=risk,
        inputs=as_inputs(problem.x, base.channels_last),
        visited=risk.visited(),
        batch_size=batch,
        operations=forward_operations(model, problem.x),
        epochs=EPOCHS,
    )
    return Trainer(
        model=model,
        risk=risk,
        inputs=problem.x,
        optimizer=make_optimizer("sgd", model.parameters(), lr, weight_decay, MOMENTUM),
        scheduler=None,
        batch_size=batch,
        shuffle=torch.Generator().manual_seed(seed),
        evaluate=lambda model, risk: {},
        plan=chosen(base, subject),
        planned=EPOCHS,
    )
