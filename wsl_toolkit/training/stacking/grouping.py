"""Who can train together, who should, and how many fit into memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np
import torch
from torch import nn

from wsl_toolkit.system.memory import free_memory
from wsl_toolkit.training.plan import forward_operations
from wsl_toolkit.training.stacking.optimiser import why_not_together
from wsl_toolkit.training.stacking.rehearsal import why_estimators_cannot, why_network_cannot
from wsl_toolkit.training.stacking.stack import share_order
from wsl_toolkit.training.trainer import Trainer

PAYS_BELOW = 2e8
"""Floating-point operations of one model's step: above, its matrix products alone keep the processor busy."""

ADAM_PAYS_BELOW = 2**16
"""Weights of a model: above, torch's fused step of each model alone beats Adam's six passes over all of them."""


SMALL_INPUTS = 2**17
"""Numbers that a step of all models gathers, each its own: below, one stack of several orders beats one of each."""


@attrs.frozen(kw_only=True)
class Group:
    """Trainers, by their places in the list that was given, that are trained as one; or one alone, and why."""

    places: tuple[int, ...]
    alone_because: str | None = None


def group(trainers: Sequence[Trainer], memory: int | None = None) -> list[Group]:
    """Split trainers into stacks that are possible, pay, and fit into `memory` bytes (half of what is free)."""
    groups: list[Group] = []
    for places in _buckets(trainers):
        for members in by_order(trainers, places):
            groups += _checked(trainers, members, memory)
    return groups


def why_not(trainers: Sequence[Trainer]) -> str | None:
    """Return why these trainers cannot train as one stack, or None if they can."""
    first = trainers[0]
    if any(_signature(trainer) != _signature(first) for trainer in trainers):
        return "data, network, batch size, estimator or epochs behind differ between the models"
    for trainer in trainers:
        reason = _why_not_one(trainer)
        if reason:
            return reason
    reason = why_not_together([trainer.optimizer for trainer in trainers])
    if reason:
        return reason
    estimators = [trainer.risk.estimator for trainer in trainers]
    return why_estimators_cannot(estimators, first.risk) or why_network_cannot(trainers)


def why_it_does_not_pay(trainers: Sequence[Trainer]) -> str | None:
    """Return why these trainers are as fast one by one, or None if a stack is faster."""
    if len(trainers) < 2:
        return "there is nothing to stack it with"
    first = trainers[0]
    if any(isinstance(module, nn.modules.conv._ConvNd) for module in first.model.modules()):
        return "convolutions of many models are no faster together"
    weights = sum(parameter.numel() for parameter in first.model.parameters())
    if weights > ADAM_PAYS_BELOW and not isinstance(first.optimizer, torch.optim.SGD):
        return f"Adam's step of so many weights ({weights:,}) is faster model by model"
    operations = 3 * first.batch_size * forward_operations(first.model, first.inputs)
    if operations > PAYS_BELOW:
        return f"a step of one model ({operations / 1e6:,.0f} million operations) is large enough to be efficient alone"
    return None


def models_that_fit(trainer: Trainer, memory: int | None = None) -> int:
    """Return how many models like this one fit into `memory` bytes (half of what is free), at least one."""
    # The gradient, and what the optimiser keeps: SGD one number for each weight, Adam two.
    copies = 3 if isinstance(trainer.optimizer, torch.optim.SGD) else 4
    weights = copies * sum(parameter.numel() for parameter in trainer.model.parameters())
    state = 2 * sum(buffer.numel() for buffer in trainer.risk.buffers())
    examples = trainer.inputs.chunk_length(trainer.batch_size) * int(np.prod(trainer.inputs.shape))
    available = memory if memory is not None else free_memory() // 2
    return max(1, available // (4 * (weights + state + examples)))


def _checked(trainers: Sequence[Trainer], places: Sequence[int], memory: int | None) -> list[Group]:
    members = [trainers[place] for place in places]
    reason = why_it_does_not_pay(members) or why_not(members)
    if reason:
        return [Group(places=(place,), alone_because=reason) for place in places]
    # Equal estimators side by side share a call.
    ordered = sorted(places, key=lambda place: repr(trainers[place].risk.estimator))
    size = models_that_fit(members[0], memory)
    count = -(-len(ordered) // size)
    return [Group(places=tuple(part)) for part in np.array_split(np.array(ordered), count) for part in [part.tolist()]]


def _buckets(trainers: Sequence[Trainer]) -> list[list[int]]:
    buckets: dict[str, list[int]] = {}
    for place, trainer in enumerate(trainers):
        buckets.setdefault(_signature(trainer), []).append(place)
    return list(buckets.values())


def by_order(trainers: Sequence[Trainer], places: Sequence[int]) -> list[list[int]]:
    """Split into those that share their order, and all the others, each with an order of its own.

    Sharing is fastest, unless all inputs of a step are small: then the fewest steps are.
    """
    first = trainers[places[0]]
    if len(places) * first.batch_size * math.prod(first.inputs.shape) <= SMALL_INPUTS:
        return [list(places)]
    found: list[list[int]] = []
    for place in places:
        for members in found:
            if share_order([trainers[members[0]], trainers[place]]):
                members.append(place)
                break
        else:
            found.append([place])
    sharing = [members for members in found if len(members) > 1]
    others = [members[0] for members in found if len(members) == 1]
    return [*sharing, others] if others else sharing


def _signature(trainer: Trainer) -> str:
    """Return what must be equal for trainers to take steps together."""
    shapes = [(name, tuple(p.shape), p.requires_grad) for name, p in trainer.model.named_parameters()]
    estimator = type(trainer.risk.estimator)
    facts = (
        repr(trainer.model),
        shapes,
        trainer.batch_size,
        trainer.epoch,
        trainer.step,
        trainer.by_step,
        f"{estimator.__module__}.{estimator.__qualname__}",
        trainer.risk.row_names,
        len(trainer.risk.candidates),
        trainer.risk.candidates.num_classes,
        len(trainer.visited),
        trainer.inputs.shape,
        trainer.plan,
    )
    return repr(facts)


def _why_not_one(trainer: Trainer) -> str | None:
    """Return why this trainer cannot be part of any stack, or None."""
    estimator = trainer.risk.estimator
    if not estimator.stackable:
        return f"estimator {estimator.name} declares that it cannot be stacked"
    if beyond := estimator.needs_that_do_not("stacks"):
        return f"estimator {estimator.name} needs {', '.join(beyond)}"
    if trainer.risk.weighted:
        return "its examples are weighted"
    if trainer.risk.is_compact:
        return "its state is kept on the candidates only, as there are so many classes"
    if trainer.plan.autocast or trainer.plan.compile or trainer.plan.channels_last:
        return "its plan asks for autocast, compilation or channels-last"
    trained = {id(parameter) for group in trainer.optimizer.param_groups for parameter in group["params"]}
    if trained != {id(parameter) for parameter in trainer.model.parameters()}:
        return "its optimiser does not train all of its network, or more than that"
    return None
