"""A classifier from a user's own candidate sets: defaults from the audit, selection on partial labels only.

No true label can reach training or selection: the learning problem that is built here does not hold any. Where some
are known, they are read once, after the model is chosen, to report its accuracy on held-out examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Backbone, Estimator
from wsl_toolkit.data.dataset import Data, transform_inputs
from wsl_toolkit.data.problem import CleanLabels, Problem
from wsl_toolkit.errors import ConfigError, DataError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data.audit.report import known_labels
from wsl_toolkit.parameters import values_of
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training import metrics
from wsl_toolkit.training.config import DEFAULT_COMPONENTS, Training
from wsl_toolkit.training.engine import EpochRecord, predict
from wsl_toolkit.training.train import Callback, TrainingJob, train
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

LEARNING_RATES = (0.1, 0.01)
WEIGHT_DECAYS = (1e-3, 1e-2)
"""What is tried where the user does not say: each pair, judged by approximated accuracy on held-out partial labels."""

SELECTED_BY = "validation/approximated_accuracy"

SELECTION_EXAMPLES = 20_000
"""Selection trains on no more examples than this; the chosen settings then train on all of them."""

STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 2500, 10, 100
HELD_OUT, VALIDATION = 0.2, 0.1


class Listener(Protocol):
    """Whoever shows the progress of fitting."""

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """A training begins."""

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """An epoch of a training ended; several may be trained at once."""


class Quiet:
    """A listener that says nothing."""

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """Say nothing."""

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """Say nothing."""


@attrs.frozen(kw_only=True)
class FitOptions:
    """What to fit, and how; what is None is chosen."""

    estimator: Estimator
    backbone: Backbone
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    weight_decay: float | None = None
    seed: int = 0
    device: str = "auto"
    patience: int = 0
    monitor: str = "validation/covering_rate"
    keep: str = "last"
    """When to stop early, by which metric, and which epoch's model to keep, as in `Training`."""
    refit: bool = False
    """Train once more on all examples with the chosen settings, after the report is made."""

    def trainings(self, examples: int) -> list[Training]:
        """Return the settings to try for a training part of this size."""
        batch = self.batch_size or (64 if examples <= 10_000 else 256 if examples <= 100_000 else 1024)
        steps_in_epoch = max(1, examples // batch)
        epochs = self.epochs or min(MOST_EPOCHS, max(FEWEST_EPOCHS, STEPS // steps_in_epoch))
        return [
            Training(
                epochs=epochs,
                batch_size=batch,
                lr=lr,
                weight_decay=decay,
                seed=self.seed,
                device=self.device,
                patience=self.patience,
                monitor=self.monitor,
                keep=self.keep,
            )
            for lr in ([self.lr] if self.lr is not None else LEARNING_RATES)
            for decay in ([self.weight_decay] if self.weight_decay is not None else WEIGHT_DECAYS)
        ]


@attrs.frozen(kw_only=True, eq=False)
class Fitted:
    """A network with its preprocessing, and how it was chosen."""

    network: nn.Module
    transform: nn.Module
    training: Training
    tried: tuple[dict[str, float], ...]
    """Each setting that was tried, with its score on held-out partial labels."""

    def logits(self, x: Tensor, index: Tensor | None = None) -> Tensor:
        """Return the logits of raw inputs, on the CPU, chunk by chunk."""
        parts = (torch.arange(len(x)) if index is None else index).split(LOGIT_ROWS)
        device = next(self.network.parameters()).device
        return torch.cat(
            [predict(self.network, transform_inputs(self.transform, x, part).to(device)).cpu() for part in parts]
        )


LOGIT_ROWS = 65_536


@attrs.frozen(kw_only=True)
class HeldOut:
    """How well a model does on examples that neither trained nor chose it."""

    examples: int
    covering_rate: float
    approximated_accuracy: float
    accuracy: float | None
    """Computed with the true labels that are known, None where none is."""
    known_labels: int

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return attrs.asdict(self)


def options_for(
    registry: Registry,
    *,
    estimator: tuple[str, dict[str, Any]],
    backbone: tuple[str, dict[str, Any]] | None = None,
    **chosen: Any,
) -> FitOptions:
    """Return options with components made from their names and parameter values."""
    name, values = backbone or (DEFAULT_COMPONENTS["backbone"], {})
    return FitOptions(
        estimator=registry.create("estimator", estimator[0], estimator[1]),
        backbone=registry.create("backbone", name, values),
        **chosen,
    )


def fit_and_report(
    data: Data,
    registry: Registry,
    options: FitOptions,
    listener: Listener | None = None,
    stop: StopRequest | None = None,
) -> tuple[Fitted, HeldOut]:
    """Hold examples out, fit the rest, and report on the held-out ones; with `refit`, train on all of them then."""
    candidates = own_candidates(data)
    order = torch.randperm(len(data.x), generator=stream(options.seed, "split"))
    cut = round(HELD_OUT * len(order))
    if cut == 0:
        raise DataError(f"{data.name}: {len(order)} examples are too few to hold some out for a report")
    held_out, rest = order[:cut].sort().values, order[cut:].sort().values
    fitted = fit(data, registry, options, rest, listener, stop)
    report = evaluate(fitted, data, candidates, held_out)
    if options.refit:
        everything = attrs.evolve(options, lr=fitted.training.lr, weight_decay=fitted.training.weight_decay)
        again = fit(data, registry, everything, torch.arange(len(data.x)), listener, stop)
        fitted = attrs.evolve(again, tried=fitted.tried)
    return fitted, report


def fit(
    data: Data,
    registry: Registry,
    options: FitOptions,
    index: Tensor,
    listener: Listener | None = None,
    stop: StopRequest | None = None,
) -> Fitted:
    """Fit the examples `index` and look at no others: preprocessing, selection and training all happen inside."""
    listener = listener or Quiet()
    order = index[torch.randperm(len(index), generator=stream(options.seed, "validation"))]
    cut = round(VALIDATION * len(order))
    validation, train = order[:cut].sort().values, order[cut:].sort().values
    choices = options.trainings(len(train))
    watches = options.patience > 0 or options.keep == "best"
    if cut == 0 or (len(choices) == 1 and not watches):
        problem = make_own_problem(data, index, index[:0])
        steady = attrs.evolve(choices[0], patience=0, keep="last")  # there is nothing to watch
        ((network, _),) = _train(problem, registry, options, [steady], listener, stop)
        return Fitted(network=network, transform=problem.transform, training=choices[0], tried=())

    few = order[cut:][:SELECTION_EXAMPLES].sort().values
    problem = make_own_problem(data, few, validation)
    trainings = options.trainings(len(few))
    found = _train(problem, registry, options, trainings, listener, stop)
    tried = [(score, network, training) for (network, score), training in zip(found, trainings, strict=True)]
    _, network, best = max(tried, key=lambda each: each[0])
    scores = tuple(
        {"lr": training.lr, "weight_decay": training.weight_decay, SELECTED_BY: score} for score, _, training in tried
    )
    if len(few) == len(train):
        return Fitted(network=network, transform=problem.transform, training=best, tried=scores)
    final = next(t for t in choices if (t.lr, t.weight_decay) == (best.lr, best.weight_decay))
    problem = make_own_problem(data, train, validation)
    ((network, _),) = _train(problem, registry, options, [final], listener, stop)
    return Fitted(network=network, transform=problem.transform, training=final, tried=scores)


class _Shown(Callback):
    """Shows one training of several."""

    def __init__(self, listener: Listener, number: int, of: int, training: Training) -> None:
        self.listener = listener
        self.number = number
        self.of = of
        self.training = training

    def on_train_start(self, problem: Problem, checkpoints: TrialCheckpoints) -> None:
        """Announce the training."""
        self.listener.trial(self.number, self.of, self.training.seed, self.training.epochs)

    def on_epoch_end(self, record: EpochRecord) -> None:
        """Show an epoch."""
        self.listener.epoch(record, self.number)


def _train(
    problem: Problem,
    registry: Registry,
    options: FitOptions,
    trainings: Sequence[Training],
    listener: Listener,
    stop: StopRequest | None,
) -> list[tuple[nn.Module, float]]:
    """Train each setting; return the networks and their approximated accuracies on held-out partial labels."""
    if len(problem.train_candidates.labelled()) == 0:
        raise DataError("every training example has all classes as candidates: there is nothing to learn from")
    jobs = [
        TrainingJob(
            problem=problem,
            estimator=options.estimator,
            backbone=options.backbone,
            training=training,
            seed=options.seed,
            callback=_Shown(listener, number, len(trainings), training),
        )
        for number, training in enumerate(trainings, start=1)
    ]
    with (
        attributed(registry, "backbone", options.backbone.name),
        attributed(registry, "estimator", options.estimator.name),
    ):
        return [(each.model, each.final.get(SELECTED_BY, float("nan"))) for each in train(jobs, stop=stop)]


def make_own_problem(data: Data, train: Tensor, validation: Tensor) -> Problem:
    """Return a learning problem on a user's own sets, without any true label in it."""
    candidates = own_candidates(data)
    transform = data.fit_inputs(train)
    train_x = transform_inputs(transform, data.x, train)
    return Problem(
        train_x=train_x,
        train_candidates=candidates.take(train),
        validation_x=transform_inputs(transform, data.x, validation),
        validation_candidates=candidates.take(validation) if len(validation) else None,
        test_x=train_x[:0],
        clean=CleanLabels(train=None, validation=None, test=None),
        transform=transform,
        num_classes=data.num_classes,
        input_shape=tuple(train_x.shape[1:]),
    )


def own_candidates(data: Data) -> CandidateSets:
    """Return the data's own candidate sets, or say that it has none."""
    if data.candidates is None:
        raise ConfigError(f"{data.name} has no candidate sets: name the column or the variable that holds them")
    return data.candidates


def evaluate(fitted: Fitted, data: Data, candidates: CandidateSets, index: Tensor) -> HeldOut:
    """Report on examples that had no part in fitting."""
    logits = fitted.logits(data.x, index)
    informative = (candidates.sizes[index] < candidates.num_classes).nonzero().flatten()
    mask = candidates.mask(index[informative]).cpu()
    labels = known_labels(data)
    known = None if labels is None else labels[index]
    count = 0 if known is None else int((known >= 0).sum())
    nothing = float("nan")
    return HeldOut(
        examples=len(index),
        covering_rate=float(metrics.covering_rate(logits[informative], mask)) if len(mask) else nothing,
        approximated_accuracy=float(metrics.approximated_accuracy(logits[informative], mask)) if len(mask) else nothing,
        accuracy=float(metrics.accuracy(logits, known)) if known is not None and count else None,
        known_labels=count,
    )


def describe(options: FitOptions, fitted: Fitted) -> dict[str, Any]:
    """Return what was fitted, for a model's metadata and for tracking."""
    return {
        "estimator": {"name": options.estimator.name, **values_of(options.estimator)},
        "backbone": {"name": options.backbone.name, **values_of(options.backbone)},
        "training": fitted.training.to_dict(),
        "tried": [dict(choice) for choice in fitted.tried],
        "refit": options.refit,
    }
