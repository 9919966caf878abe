"""One trial: a seed's problem, a fresh network and an estimator, trained and evaluated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Backbone, Estimator
from wsl_toolkit.data.inputs import StreamedInputs
from wsl_toolkit.data.problem import Problem, training_candidates
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.networks import plain
from wsl_toolkit.system.random_streams import stream, stream_seed
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training import metrics
from wsl_toolkit.training.checkpoints import Place
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.distributed.memory import SharedMemory
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.distributed.trainer import ParallelTrainer, own_rows, own_sets
from wsl_toolkit.training.engine import EpochRecord, LogitEvaluation, Trainer
from wsl_toolkit.training.optimisers import make_optimizer, make_scheduler, takes_momentum
from wsl_toolkit.training.plan import choose_plan
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.trial_memory import TrialMemory


@attrs.frozen(kw_only=True, eq=False)
class TrialOutcome:
    """What came of one seed, as far as the record on disk tells it."""

    seed: int
    records: tuple[EpochRecord, ...]
    candidates_hash: str
    mean_size: float
    seconds: float

    @property
    def final(self) -> dict[str, float]:
        """The last epoch's metrics."""
        return self.records[-1].metrics


@attrs.frozen(kw_only=True, eq=False)
class TrialResult(TrialOutcome):
    """What came of one seed that has just been trained."""

    model: nn.Module


def run_trial(
    problem: Problem,
    estimator: Estimator,
    backbone: Backbone,
    training: Training,
    seed: int,
    on_epoch: Callable[[EpochRecord], None] = lambda record: None,
    *,
    memory: TrialMemory | None = None,
    stop: StopRequest | None = None,
    ranks: Ranks | None = None,
) -> TrialResult:
    """Train one seed; every random draw comes from streams of that seed, and torch's global state is left as it was.

    With a `memory`, training goes on from its newest checkpoint and leaves new ones; a request to `stop` is granted
    between two batches. With `ranks`, all of them must call this; rank 0 alone has metrics beyond the risk.
    """
    stop = stop or StopRequest()
    memory = memory or TrialMemory()
    if ranks is not None:
        memory = SharedMemory(ranks, memory)
    with torch.random.fork_rng(devices=[]), memory.same_threads():
        trainer = make_trainer(problem, estimator, backbone, training, seed, ranks)
        trainer.stop = stop
        past = memory.restore(trainer)
        start = time.perf_counter() - past.seconds
        records = list(past.records)
        for record in trainer.epochs(training.epochs):
            records.append(record)
            on_epoch(record)
            memory.after_epoch(trainer, records, time.perf_counter() - start)
        seconds = time.perf_counter() - start
        memory.at_end(trainer, records, seconds, finished=trainer.epoch == training.epochs)
    if trainer.epoch < training.epochs:
        stop.grant(f" at {Place(epoch=trainer.epoch, step=trainer.step)} of {training.epochs}")
    return TrialResult(
        seed=seed,
        records=tuple(records),
        candidates_hash=problem.train_candidates.content_hash,
        mean_size=problem.train_candidates.mean_size,
        seconds=seconds,
        model=plain(trainer.model).eval(),
    )


def check_training(training: Training) -> None:
    """Refuse a device, an optimiser or a schedule that cannot be had, before anything is recorded."""
    parameter = nn.Parameter(torch.zeros(1, device=choose_device(training.device)))
    optimizer = _make_optimizer(training, [parameter])
    make_scheduler(training.scheduler, optimizer, training.epochs)


def _make_optimizer(training: Training, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimiser of a training; the momentum, which always has a value, is for those that have one."""
    momentum = training.momentum if takes_momentum(training.optimizer) else None
    return make_optimizer(training.optimizer, parameters, training.lr, training.weight_decay, momentum)


def make_trainer(
    problem: Problem,
    estimator: Estimator,
    backbone: Backbone,
    training: Training,
    seed: int,
    ranks: Ranks | None = None,
) -> Trainer:
    """Put a trial together; seeds torch's global generator, which initialisation and dropout use.

    With `ranks`, the trainer is this rank's part of one that all of them train.
    """
    device = choose_device(training.device if ranks is None else ranks.device(training.device))
    torch.manual_seed(stream_seed(seed, "initialisation"))
    model = estimator.extend(backbone.build(problem.input_shape, problem.num_classes)).to(device)
    torch.manual_seed(stream_seed(seed, "training" + (ranks.stream if ranks else "")))
    optimizer = _make_optimizer(training, model.parameters())
    inputs = problem.train_x if ranks is None else own_rows(problem.train_x, ranks)
    inputs = inputs.to(device)
    candidates = training_candidates(problem, estimator)
    half = training.precision == "bfloat16"
    parts: dict[str, Any] = {
        "model": model,
        "inputs": inputs,
        "optimizer": optimizer,
        "scheduler": make_scheduler(training.scheduler, optimizer, training.epochs),
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


def evaluation(problem: Problem, device: torch.device, *, with_test: bool = True) -> LogitEvaluation:
    """Return what is measured after each epoch; the only reader of clean labels, and each such metric says so."""
    validation_x, test_x = problem.validation_x.to(device), problem.test_x.to(device)
    validation_y, test_y = _known(problem.clean.validation, device), _known(problem.clean.test, device)
    held_out = problem.validation_candidates
    labelled = held_out.labelled() if held_out is not None else None
    mask = held_out.mask(labelled).to(device) if held_out is not None and labelled is not None else None

    inputs: dict[str, Tensor | StreamedInputs] = {}
    if mask is not None and len(mask):
        inputs["validation"] = validation_x
    if with_test and test_y is not None:
        inputs["test"] = test_x

    def score(logits: dict[str, Tensor], risk: Risk) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if "validation" in logits and mask is not None and labelled is not None:
            known = logits["validation"][labelled.to(device)]
            found["validation/covering_rate"] = metrics.covering_rate(known, mask)
            found["validation/approximated_accuracy"] = metrics.approximated_accuracy(known, mask)
            if risk.estimator.logits_suffice:
                found["validation/risk"] = metrics.held_out_risk(risk.estimator, known, mask, risk.shared())
            if validation_y is not None:
                found["validation/oracle_accuracy"] = metrics.accuracy(logits["validation"], validation_y)
                truth = validation_y[labelled.to(device)]
                found["validation/oracle_confidence"] = metrics.true_label_confidence(known, mask, truth)
        if "test" in logits and test_y is not None:
            found["test/accuracy"] = metrics.accuracy(logits["test"], test_y)
        return found

    return LogitEvaluation(inputs=inputs, score=score)


def _known(labels: Tensor | None, device: torch.device) -> Tensor | None:
    """Return labels if at least one is known, on the device."""
    return labels.to(device) if labels is not None and bool((labels >= 0).any()) else None


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
