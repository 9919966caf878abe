"""From a problem and its components to a trainer: every random draw comes from streams of the seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from wsl_toolkit.components import Backbone, Estimator
from wsl_toolkit.data.problem import Problem, training_candidates
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.parameters import construct
from wsl_toolkit.system.random_streams import stream, stream_seed
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.distributed.trainer import ParallelTrainer, own_rows, own_sets
from wsl_toolkit.training.evaluation import evaluation
from wsl_toolkit.training.metrics import monitored
from wsl_toolkit.training.optimisers import make_optimizer, options_class, takes_momentum
from wsl_toolkit.training.plan import choose_plan
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.schedules import make_scheduler, schedule_class
from wsl_toolkit.training.trainer import Trainer


def make_trainer(
    problem: Problem,
    estimator: Estimator,
    backbone: Backbone,
    training: Training,
    seed: int,
    ranks: Ranks | None = None,
) -> Trainer:
    """Put a trainer together; seeds torch's global generator, which initialisation and dropout use.

    With `ranks`, the trainer is this rank's part of one that all of them train.
    """
    device = choose_device(training.device if ranks is None else ranks.device(training.device))
    torch.manual_seed(stream_seed(seed, "initialisation"))
    model = estimator.extend(backbone.build(problem.input_shape, problem.num_classes)).to(device)
    torch.manual_seed(stream_seed(seed, "training" + (ranks.stream if ranks else "")))
    optimizer = _make_optimizer(training, model)
    inputs = problem.train_x if ranks is None else own_rows(problem.train_x, ranks)
    inputs = inputs.to(device)
    candidates = training_candidates(problem, estimator)
    half = training.precision == "bfloat16"
    parts: dict[str, Any] = {
        "model": model,
        "inputs": inputs,
        "optimizer": optimizer,
        "scheduler": make_scheduler(
            training.scheduler, optimizer, training.epochs, training.scheduler_options, training.warmup_epochs
        ),
        "batch_size": training.batch_size,
        "shuffle": stream(seed, "shuffling"),
        "evaluate": evaluation(problem, device),
        "plan": choose_plan(model, inputs, device, batch_size=training.batch_size, autocast=half),
        "nan_ends": training.on_nan == "stop",
    }
    if ranks is None:
        return Trainer(risk=Risk(estimator, candidates.to(device)), **parts)
    ranks.agree("candidate sets", candidates.content_hash)
    risk = Risk(estimator, own_sets(candidates, ranks).to(device), whole=candidates).to(device)
    return ParallelTrainer(ranks=ranks, whole=candidates.to(device), risk=risk, **parts)


def _make_optimizer(training: Training, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser of a training; the momentum, which always has a value, is for those that have one."""
    momentum = training.momentum if takes_momentum(training.optimizer) else None
    return make_optimizer(
        training.optimizer,
        model.parameters(),
        training.lr,
        training.weight_decay,
        momentum,
        training.optimizer_options,
    )


def check_training(training: Training) -> None:
    """Refuse a device, an optimiser, a schedule or a metric that does not exist, before anything is recorded.

    Whether an optimiser can train a network is known only when both are there.
    """
    choose_device(training.device)
    construct(options_class(training.optimizer), training.optimizer_options)
    construct(schedule_class(training.scheduler), training.scheduler_options, f"scheduler {training.scheduler}")
    if training.warmup_epochs >= training.epochs:
        raise ConfigError(f"--warmup-epochs {training.warmup_epochs} leaves none of {training.epochs} epochs to train")
    monitored(training.monitor)


def choose_device(name: str) -> torch.device:
    """Return the device of that name; 'auto' takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"--device {name!r} cannot be used here: {reason}") from None
    return device
