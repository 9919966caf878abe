"""From a problem and its components to a trainer: every random draw comes from streams of the seed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from wsl_toolkit.augmentation import AUGMENTATIONS
from wsl_toolkit.components import Backbone, Component, Estimator, Scheduler
from wsl_toolkit.data.inputs import Inputs, as_inputs
from wsl_toolkit.data.problem import Problem, training_candidates
from wsl_toolkit.errors import ConfigError, PluginError
from wsl_toolkit.networks import Augmented, Pixels, feature_width
from wsl_toolkit.parameters import construct
from wsl_toolkit.plugins.attribution import mark
from wsl_toolkit.plugins.places import defined_at
from wsl_toolkit.system.random_streams import seed_torch, stream, stream_seed, watched
from wsl_toolkit.training.calibration import Subject, chosen
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.devices import choose_device
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.distributed.trainer import ParallelTrainer, own_rows, own_sets
from wsl_toolkit.training.evaluation import evaluation
from wsl_toolkit.training.metrics import monitored
from wsl_toolkit.training.optimisers import make_optimizer, options_class, takes_momentum
from wsl_toolkit.training.plan import ExecutionPlan, base_plan, forward_operations
from wsl_toolkit.training.residency import placed, settled
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
    recorded: Mapping[str, Any] | None = None,
) -> Trainer:
    """Put a trainer together; seeds torch's global generator, which initialisation and dropout use.

    With `ranks`, the trainer is this rank's part of one that all of them train. `recorded` is what a checkpoint says
    of threads and chunks, which then is not chosen anew.
    """
    device = choose_device(training.device if ranks is None else ranks.device(training.device))
    own_stream = ranks.stream if ranks else ""
    model = make_model(problem, estimator, backbone, training.augmentation, seed, own_stream).to(device)
    problem = _settled(problem, model)
    seed_torch(stream_seed(seed, f"training{own_stream}"))
    optimizer = _make_optimizer(training, model)
    inputs = problem.train_x if ranks is None else own_rows(problem.train_x, ranks)
    inputs = placed(inputs, device)
    candidates = training_candidates(problem, estimator)
    parts: dict[str, Any] = {
        "model": model,
        "inputs": inputs,
        "optimizer": optimizer,
        "scheduler": None if _schedule_by_step(training) else _make_scheduler(training, optimizer),
        "batch_size": training.batch_size,
        "shuffle": stream(seed, "shuffling"),
        "evaluate": evaluation(problem, device),
        "nan_ends": training.on_nan == "stop",
        "planned": training.epochs,
    }
    weights = None if problem.weights is None else problem.weights.to(device)
    if ranks is None:
        width = _feature_width(estimator, model, problem, device)
        own = Risk(estimator, candidates.to(device), weights=weights, feature_width=width)
        plan = _plan(model, own, inputs, device, training, recorded=recorded)
        return _scheduled(Trainer(risk=own, plan=plan, **parts), training)
    ranks.agree("candidate sets", candidates.content_hash)
    if problem.weights is not None:
        ranks.agree("weights", hashlib.sha256(problem.weights.double().numpy().tobytes()).hexdigest())
    risk = Risk(
        estimator,
        own_sets(candidates, ranks).to(device),
        whole=candidates,
        weights=weights,
        index=ranks.rows_of(ranks.rank, len(candidates)),
        feature_width=_feature_width(estimator, model, problem, device),
    ).to(device)
    plan = _plan(model, risk, inputs, device, training, ranks, recorded)
    whole = candidates.to(device)
    return _scheduled(ParallelTrainer(ranks=ranks, whole=whole, risk=risk, plan=plan, **parts), training)


def _plan(
    model: nn.Module,
    risk: Risk,
    inputs: Tensor | Inputs,
    device: torch.device,
    training: Training,
    ranks: Ranks | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> ExecutionPlan:
    """Return how to train; its count of operations is the network's first forward pass."""
    try:
        plan = base_plan(model, inputs, device)
        half = training.precision != "float32"
        plan = attrs.evolve(
            plan,
            autocast=half,
            half=training.precision if half else plan.half,
            compile=training.compile,
            deterministic=training.deterministic,
        )
        subject = Subject(
            model=model,
            risk=risk,
            inputs=as_inputs(inputs, plan.channels_last),
            visited=risk.visited(),
            batch_size=max(1, training.batch_size // (ranks.count if ranks else 1)),
            operations=forward_operations(model, inputs),
            epochs=training.epochs,
        )
        return chosen(plan, subject, threads=training.threads, recorded=recorded, ranks=ranks)
    except Exception as error:
        mark(error, "backbone")
        raise


def _settled(problem: Problem, model: nn.Module) -> Problem:
    """Return the problem with inputs that lie in memory as suits the network; that may be its first forward pass."""
    try:
        return settled(problem, model)
    except Exception as error:
        mark(error, "backbone")
        raise


def build_network(
    backbone: Backbone, input_shape: tuple[int, ...], num_classes: int, seed: int | None = None
) -> nn.Module:
    """Return a backbone's network, initialised by the seed alone, or say what is wrong with it."""

    def build() -> Any:
        if seed is not None:
            seed_torch(seed)
        return backbone.build(input_shape, num_classes)

    try:
        network, moved = watched(build, among=("numpy", "Python"))
        if moved:
            raise _refused("backbone", backbone, "build", f"drew from {moved}'s global random generator: use torch's")
        if seed is not None and torch.initial_seed() != seed:
            raise _refused("backbone", backbone, "build", "seeded torch, so that every trial would begin alike")
        if not isinstance(network, nn.Module):
            raise _refused("backbone", backbone, "build", f"returned {type(network).__name__}, not a torch.nn.Module")
        if not any(parameter.requires_grad for parameter in network.parameters()):
            raise _refused("backbone", backbone, "build", "returned a network without parameters to train")
    except Exception as error:
        mark(error, "backbone")
        raise
    return network


def make_model(
    problem: Problem,
    estimator: Estimator,
    backbone: Backbone,
    augmentation: str,
    seed: int,
    own_stream: str = "",
    *,
    start: bool = True,
) -> nn.Module:
    """Build the network to train; each one after the first, where there are several, has streams of its own.

    It seeds torch's global generator. `own_stream` tells the streams of several ranks apart. Without `start` it is a
    network that gets its weights from elsewhere, a checkpoint for one.
    """
    if backbone.frozen:
        raise ConfigError(
            f"backbone {backbone.name}: whole networks are trained here, and none is frozen. `wsl run`, studies and "
            "wsl_toolkit.train can; or compute the features first, with `wsl features`, and give them as the data"
        )
    numbers = (f" {number}" if number > 1 else "" for number in itertools.count(1))

    def build() -> nn.Module:
        number = next(numbers)
        own = stream_seed(seed, f"initialisation{number}")
        network = build_network(backbone, problem.input_shape, problem.num_classes, seed=own)
        if start:
            start_network(backbone, network, problem.transform)
        if augmentation == "none" or estimator.has_views():
            return network
        augment = AUGMENTATIONS[augmentation]
        return Augmented(network, augment, stream_seed(seed, f"augmentation{number}{own_stream}"))

    two = "two_networks" in estimator.needs
    model: Any = estimator.extend_two(build) if two else estimator.extend(build())
    if not isinstance(model, nn.Module):
        function = "extend_two" if two else "extend"
        raise _refused("estimator", estimator, function, f"returned {type(model).__name__}, not a torch.nn.Module")
    return model


def start_network(backbone: Backbone, network: nn.Module, transform: nn.Module) -> None:
    """Tell a network how its inputs are scaled, where it asks, and give it the weights that it starts from."""
    for module in network.modules():
        if isinstance(module, Pixels):
            module.learn(transform)
    try:
        if said := backbone.start(network):
            network.wsl_started_from = said  # type: ignore[assignment]
    except Exception as error:
        mark(error, "backbone")
        raise


def started_from(model: nn.Module) -> list[str]:
    """Return what backbones say of the weights that a model started from."""
    said = (getattr(module, "wsl_started_from", "") for module in model.modules())
    return list(dict.fromkeys(text for text in said if isinstance(text, str) and text))


def _feature_width(estimator: Estimator, model: nn.Module, problem: Problem, device: torch.device) -> int | None:
    """Return how wide features are, if the estimator has state that depends on it."""
    if type(estimator).init_features is Estimator.init_features:
        return None
    return feature_width(model, as_inputs(problem.train_x).gather(torch.zeros(1, dtype=torch.long)).to(device))


def _refused(role: str, component: Component, function: str, what: str) -> PluginError:
    place = defined_at(getattr(type(component), function))
    error = PluginError(f"{role} {component.name}: {function} {what} ({type(component).__name__}, {place})")
    mark(error, role)
    return error


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


def _schedule(training: Training) -> Scheduler:
    return construct(schedule_class(training.scheduler), training.scheduler_options, f"scheduler {training.scheduler}")


def _schedule_by_step(training: Training) -> bool:
    return _schedule(training).by_step()


def _make_scheduler(training: Training, optimizer: torch.optim.Optimizer, steps: int = 1) -> LRScheduler | None:
    """Return the schedule of a training whose epochs have so many steps, or one if it is stepped after each epoch."""
    epochs, warmup = training.epochs * steps, training.warmup_epochs * steps
    return make_scheduler(training.scheduler, optimizer, epochs, training.scheduler_options, warmup)


def _scheduled(trainer: Trainer, training: Training) -> Trainer:
    """Return a trainer with a schedule that is stepped after each batch, if that is what was asked for."""
    if _schedule_by_step(training):
        trainer.schedule_steps(_make_scheduler(training, trainer.optimizer, trainer.steps_per_epoch))
    return trainer


def check_training(training: Training) -> None:
    """Refuse a device, an optimiser, a schedule or a metric that does not exist, before anything is recorded.

    Whether an optimiser can train a network is known only when both are there.
    """
    choose_device(training.device)
    construct(options_class(training.optimizer), training.optimizer_options)
    _schedule(training)
    if training.subset > 1 and training.subset != int(training.subset):
        raise ConfigError(f"--subset {training.subset:g} is neither a share below 1 nor a whole number of examples")
    if training.warmup_epochs >= training.epochs:
        raise ConfigError(f"--warmup-epochs {training.warmup_epochs} leaves none of {training.epochs} epochs to train")
    monitored(training.monitor)
