"""Optimisers and learning-rate schedules by name: torch's own, fused where that is supported."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from wsl_toolkit.errors import ConfigError, did_you_mean

SCHEDULERS = ("none", "cosine", "step", "linear", "exponential")
"""Schedules of the learning rate; each is spread over the whole run."""

# LBFGS wants a closure that evaluates the loss again, and SparseAdam sparse gradients: neither fits the loop.
_UNSUITABLE = {"Optimizer", "LBFGS", "SparseAdam"}


def _known_optimizers() -> dict[str, type[torch.optim.Optimizer]]:
    classes = (value for value in vars(torch.optim).values() if isinstance(value, type))
    suitable = (c for c in classes if issubclass(c, torch.optim.Optimizer) and c.__name__ not in _UNSUITABLE)
    return {c.__name__.lower(): c for c in suitable}


OPTIMIZERS = tuple(sorted(_known_optimizers()))
"""Names that `make_optimizer` knows: the optimisers of the installed torch, in lower case."""


def takes_momentum(name: str) -> bool:
    """Return whether an optimiser has a momentum to set."""
    cls = _known_optimizers().get(name)
    return cls is not None and "momentum" in inspect.signature(cls).parameters


def make_optimizer(
    name: str,
    parameters: Iterable[nn.Parameter],
    lr: float,
    weight_decay: float = 0.0,
    momentum: float | None = None,
) -> torch.optim.Optimizer:
    """Return an optimiser of torch.optim; `momentum` None means 0.9 for sgd and torch's default for the others."""
    known = _known_optimizers()
    cls = known.get(name)
    if cls is None:
        hint = did_you_mean(name.lower(), known) or f" Known: {', '.join(OPTIMIZERS)}."
        raise ConfigError(f"no optimiser is named {name!r}.{hint}")
    accepted = inspect.signature(cls).parameters
    if momentum is None and name == "sgd":
        momentum = 0.9
    options: dict[str, Any] = {"lr": lr}
    for key, value, absent in (("weight_decay", weight_decay, 0.0), ("momentum", momentum, None)):
        if key in accepted:
            # Some optimisers decay by default; what the user sees as 0 must be 0.
            options |= {} if value is None else {key: value}
        elif value != absent:
            raise ConfigError(f"optimiser {name} knows no {key.replace('_', ' ')}; leave it out, or choose another")
    if "fused" in accepted:
        # One kernel over all tensors of the model: 1.5 to 5 times faster than one call a tensor, on the CPU too.
        options["fused"] = True
    try:
        return cls(parameters, **options)
    except ValueError as error:
        raise ConfigError(f"optimiser {name}: {error}") from None


def make_scheduler(name: str | None, optimizer: torch.optim.Optimizer, epochs: int) -> lr_scheduler.LRScheduler | None:
    """Return a schedule to step after each of `epochs` epochs, or None for a constant learning rate.

    cosine: half a cosine down to 0; linear: straight down to 0; step: a tenth at 1/2 and again at 3/4 of the run
    (He et al. 2016); exponential: the same factor every epoch, a hundredth at the end.
    """
    if name is None or name == "none":
        return None
    if name == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    if name == "linear":
        return lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=epochs)
    if name == "step":
        return lr_scheduler.MultiStepLR(optimizer, milestones=[max(1, epochs // 2), max(2, 3 * epochs // 4)])
    if name == "exponential":
        return lr_scheduler.ExponentialLR(optimizer, gamma=0.01 ** (1 / epochs))
    hint = did_you_mean(name, SCHEDULERS) or f" Known: {', '.join(SCHEDULERS)}."
    raise ConfigError(f"no learning-rate schedule is named {name!r}.{hint}")
