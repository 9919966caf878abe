"""A classifier from a user's own candidate sets: what is tried follows from the data, and held-out sets choose.

No true label can reach training or selection, unless the user asks for it (`use_known_labels`): the learning problem
that is built here does not hold any. Where some are known, they are read once, after the model is chosen, to report its
accuracy on held-out examples.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Backbone, Estimator, Transform
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import DataError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import calibration, trees
from wsl_toolkit.own_data.averaging import AverageChoice, average
from wsl_toolkit.own_data.choices import (
    DECAYS,
    RATES,
    Choice,
    NetworkChoice,
    Plan,
    Size,
    TreesChoice,
    following,
    forests,
    plan,
    until_laws,
)
from wsl_toolkit.own_data.description import describe
from wsl_toolkit.own_data.fitted import Fitted
from wsl_toolkit.own_data.held_out import HeldOut, evaluate
from wsl_toolkit.own_data.judging import Judged, LawFound, compared, judge, law_found, standing, worth_of
from wsl_toolkit.own_data.learning import (
    Learner,
    Listener,
    Quiet,
    by_kind,
    known_labels,
    make_own_problem,
    own_candidates,
)
from wsl_toolkit.own_data.set_laws import LAWS
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.config import DEFAULT_COMPONENTS, Training

SELECTION_EXAMPLES = 20_000
"""Selection trains on no more examples than this; the chosen settings then train on all of them."""

STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 2500, 10, 100
HELD_OUT, VALIDATION = 0.2, 0.1
FOLDS, FOLDED = 5, 5_000
"""In so many folds choices are judged, up to so many examples; beyond, on one part that is held out."""
TENTHS, MANY = 3, 1_000
"""Beyond so many examples, a single winner's temperature is learned on so many tenths instead of the folds."""


@attrs.frozen(kw_only=True)
class FitOptions:
    """What to fit, and how; what is None is chosen."""

    estimator: Estimator
    backbone: Backbone | None = None
    """The network; None: by the data."""
    transform: Transform | None = None
    """What happens to the sets that are learned from; held-out ones stay as they are."""
    trees: bool = False
    """Whether gradient-boosted trees are the one thing to try."""
    budget: str = "normal"
    """How long one is willing to wait, see `choices.BUDGETS`."""
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    weight_decay: float | None = None
    seed: int = 0
    device: str = "auto"
    threads: int = 0
    """Threads of a training step; 0: what is fastest."""
    patience: int = 0
    monitor: str = "validation/covering_rate"
    keep: str = "last"
    """When to stop early, by which metric, and which epoch's model to keep, as in `Training`."""
    calibrate: bool = True
    """Whether a temperature is learned from held-out sets."""
    use_known_labels: bool = False
    """Whether an example whose true label is known is learned from as the set of that label alone."""
    refit: bool = False
    """Train once more on all examples with the chosen settings, after the report is made."""

    @property
    def averages(self) -> bool:
        """Whether several models may be averaged: where nobody said which one it should be."""
        return self.backbone is None and not self.trees

    @property
    def watches(self) -> bool:
        """Whether training looks at a held-out part while it goes on."""
        return Training(patience=self.patience, keep=self.keep).watches

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
                threads=self.threads,
                patience=self.patience,
                monitor=self.monitor,
                keep=self.keep,
            )
            for lr in ([self.lr] if self.lr is not None else RATES[self.budget])
            for decay in ([self.weight_decay] if self.weight_decay is not None else DECAYS[self.budget])
        ]


def options_for(
    registry: Registry,
    *,
    estimator: tuple[str, dict[str, Any]],
    backbone: tuple[str, dict[str, Any]] | None = None,
    transform: tuple[str, dict[str, Any]] | None = None,
    **chosen: Any,
) -> FitOptions:
    """Return options with components made from their names and parameter values.

    Where no backbone is named but settings of a network's training are given, a linear model is meant.
    """
    if backbone is None and means_a_network(chosen):
        backbone = (DEFAULT_COMPONENTS["backbone"], {})
    grows = backbone is not None and backbone[0] == trees.NAME
    network = None if backbone is None or grows else registry.create("backbone", *backbone)
    return FitOptions(
        estimator=registry.create("estimator", *estimator),
        backbone=network,
        transform=None if transform is None else registry.create("transform", *transform),
        trees=grows,
        **chosen,
    )


def means_a_network(chosen: Mapping[str, Any]) -> bool:
    """Return whether options say how to train, which trees have no use for."""
    told = any(chosen.get(name) is not None for name in ("epochs", "batch_size", "lr", "weight_decay"))
    return told or bool(chosen.get("patience")) or chosen.get("keep", "last") != "last"


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
        fitted = _refitted(_learner(data, registry, options, listener, stop), fitted, options)
    return fitted, report


def _refitted(learner: Learner, fitted: Fitted, options: FitOptions) -> Fitted:
    """Return what was chosen, fitted to all examples; of an average every choice, once."""
    everything = torch.arange(len(learner.data.x))
    chosen = fitted.choice
    parts = [part.choice for part in chosen.parts] if isinstance(chosen, AverageChoice) else [chosen]
    sized = [_for_size(choice, options, len(everything)) for choice in parts]
    (made,) = learner.fit(sized, [(everything, everything[:0])])
    fitted = attrs.evolve(fitted, transform=made[0].transform, change=made[0].change)
    if not isinstance(chosen, AverageChoice):
        return attrs.evolve(fitted, network=made[0].network, choice=sized[0])
    own = [attrs.evolve(part, choice=each) for part, each in zip(chosen.parts, sized, strict=True)]
    choice = AverageChoice(parts=tuple(own))
    return attrs.evolve(fitted, network=choice.network([[each.network] for each in made]), choice=choice)


def training_data(data: Data, options: FitOptions) -> Data:
    """Return the data to learn from: with the known labels as sets of one class if the user asks for that."""
    labels = known_labels(data) if options.use_known_labels else None
    if labels is None:
        return data
    candidates = own_candidates(data)
    mask = candidates.mask().cpu().clone()
    known = (labels >= 0).nonzero().flatten()
    mask[known] = nn.functional.one_hot(labels[known], candidates.num_classes).bool()
    return attrs.evolve(data, candidates=CandidateSets.from_mask(mask, candidates.class_names))


def fit(
    data: Data,
    registry: Registry,
    options: FitOptions,
    index: Tensor,
    listener: Listener | None = None,
    stop: StopRequest | None = None,
) -> Fitted:
    """Fit the examples `index` and look at no others: preprocessing, selection and training all happen inside."""
    began = time.monotonic()
    learner = _learner(data, registry, options, listener, stop)
    candidates = own_candidates(learner.data)
    folds = _folds(data, options, index)
    parts = [(part[:SELECTION_EXAMPLES].sort().values, held_out) for part, held_out in folds]
    todo = _plan(learner.data, registry, options, len(index), len(parts[0][0]), len(parts))
    nothing = index[:0]
    if not len(folds[0][1]) or (len(todo.choices) == 1 and not options.watches and not options.calibrate):
        choice = _unwatched(_for_size(todo.choices[0], options, len(index)))
        ((made,),) = learner.fit([choice], [(index, nothing)])
        return Fitted(
            network=made.network,
            transform=made.transform,
            choice=choice,
            seconds=time.monotonic() - began,
            change=made.change,
        )
    mixes = options.averages and len(folds) > 1 and len(todo.choices) > 1
    if mixes:  # models that are averaged see the same inputs
        learner = attrs.evolve(learner, inputs=learner.data.fit_inputs(index))
    judged, law = _judged(learner, todo, parts, options)
    kept = (
        _averaged(judged, candidates, parts, options, law) if mixes else _winner(learner, judged, folds, options, index)
    )
    return attrs.evolve(
        kept,
        tried=tuple(each.to_dict() for each in judged),
        left_out=todo.left_out,
        laws=() if law is None else law.ranked,
        chances=None if law is None else law.chances,
        seconds=time.monotonic() - began,
    )


def _judged(
    learner: Learner, todo: Plan, parts: Sequence[tuple[Tensor, Tensor]], options: FitOptions
) -> tuple[list[Judged], LawFound | None]:
    """Fit and judge all choices, kind by kind: first those that tell a law of the sets, then the others under it."""
    candidates = own_candidates(learner.data)
    held = [held_out for _, held_out in parts]
    judged: list[Judged] = []
    law: LawFound | None = None
    planned = len(todo.choices)

    def kinds() -> Iterator[list[Choice]]:
        nonlocal law, planned
        first, others = until_laws(todo.choices)
        yield from by_kind(first)
        law = law_found(judged, candidates, held, options.calibrate)
        rest = following(law.law if law is not None else LAWS[0], first, others)
        planned = len(first) + len(rest)
        yield from by_kind(rest)

    for made_of_kind in learner.fit_kinds(kinds(), parts):
        judged += judge(made_of_kind, candidates, held, options.calibrate)
        best = min(judged, key=lambda each: each.loss)
        learner.listener.judged(standing(best, candidates, held, left=planned - len(judged)))
    return judged if law is None else compared(judged, law, candidates, held, options.calibrate), law


def _averaged(
    judged: Sequence[Judged],
    candidates: CandidateSets,
    parts: Sequence[tuple[Tensor, Tensor]],
    options: FitOptions,
    law: LawFound | None,
) -> Fitted:
    """Return the average of the folds' models that makes held-out sets likeliest."""
    mask = torch.cat([candidates.mask(held_out).cpu() for _, held_out in parts])
    choice, network, temperature = average(judged, mask, options.calibrate, None if law is None else law.worth)
    made = judged[0].made
    return Fitted(network=network, transform=made.transform, choice=choice, temperature=temperature, change=made.change)


def _winner(
    learner: Learner,
    judged: Sequence[Judged],
    folds: Sequence[tuple[Tensor, Tensor]],
    options: FitOptions,
    index: Tensor,
) -> Fitted:
    """Return the one model that makes held-out sets likeliest: after folds, and after a selection on a part, anew."""
    best = min(judged, key=lambda each: each.loss)
    made, (part, held_out) = best.made, folds[0]
    if len(folds) > 1:
        choice = _for_size(best.choice, options, len(index))
        ((made,),) = learner.fit([choice], [(index, index[:0])])
        if len(index) > MANY and options.calibrate:
            tenths = _parts(_shuffled(options, index), 10)[:TENTHS]
            best = attrs.evolve(best, temperature=_temperature(learner, choice, tenths))
    elif len(part) > SELECTION_EXAMPLES:
        choice = _for_size(best.choice, options, len(part))
        found = learner.fit([choice], [(part.sort().values, held_out)])
        (best,) = judge(found, own_candidates(learner.data), [held_out], options.calibrate)
        made = best.made
    return Fitted(
        network=made.network,
        transform=made.transform,
        choice=made.choice,
        temperature=best.temperature,
        change=made.change,
    )


def _learner(
    data: Data, registry: Registry, options: FitOptions, listener: Listener | None, stop: StopRequest | None
) -> Learner:
    return Learner(
        data=training_data(data, options),
        registry=registry,
        estimator=options.estimator,
        transform=options.transform,
        seed=options.seed,
        listener=listener or Quiet(),
        stop=stop,
    )


def _for_size(choice: Choice, options: FitOptions, examples: int) -> Choice:
    """Return a choice with the epochs and batches that suit so many examples."""
    if isinstance(choice, TreesChoice):
        return choice
    own = choice.training
    chosen = attrs.evolve(options, lr=own.lr, weight_decay=own.weight_decay)
    sized = chosen.trainings(examples)[0]
    return attrs.evolve(choice, training=attrs.evolve(sized, augmentation=own.augmentation, scheduler=own.scheduler))


def _unwatched(choice: Choice) -> Choice:
    """Return a choice that stops for nothing: there is no held-out part to watch."""
    if isinstance(choice, TreesChoice):
        return choice
    return attrs.evolve(choice, training=attrs.evolve(choice.training, patience=0, keep="last"))


def _folds(data: Data, options: FitOptions, index: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the parts to train on, in random order, and those to judge by: folds of small data, one cut of large."""
    order = _shuffled(options, index)
    if options.watches or len(data.input_shape) > 1 or not 2 * FOLDS <= len(index) <= FOLDED:
        cut = round(VALIDATION * len(order))
        return [(order[cut:], order[:cut].sort().values)]
    return _parts(order, FOLDS)


def _shuffled(options: FitOptions, index: Tensor) -> Tensor:
    return index[torch.randperm(len(index), generator=stream(options.seed, "validation"))]


def _parts(order: Tensor, folds: int) -> list[tuple[Tensor, Tensor]]:
    """Return the parts to train on and those to judge by; what is left over by equal folds trains in every fold."""
    size = len(order) // folds
    return [
        (torch.cat([order[: i * size], order[(i + 1) * size :]]), order[i * size : (i + 1) * size].sort().values)
        for i in range(folds)
    ]


def _temperature(learner: Learner, choice: Choice, parts: list[tuple[Tensor, Tensor]]) -> float:
    """Return the temperature of models that learned from nearly as much as the one that is kept.

    Models of four fifths of the data are too sure of themselves by more than one of all the data is: their temperature
    would make its probabilities too timid.
    """
    candidates = own_candidates(learner.data)
    found = learner.fit([choice], [(part.sort().values, held_out) for part, held_out in parts])
    logits = torch.cat([made.logits[-1] for (made,) in found])
    masks = [candidates.mask(held_out).cpu() for _, held_out in parts]
    worth = worth_of([made for (made,) in found], masks, choice.law)
    return calibration.temperature(logits, torch.cat(masks), worth)


def _plan(data: Data, registry: Registry, options: FitOptions, whole: int, examples: int, fits: int) -> Plan:
    """Return what to try: what the user named, or what suits the data."""
    trainings = options.trainings(examples)
    if options.backbone is not None:
        return Plan(choices=tuple(NetworkChoice(backbone=options.backbone, training=each) for each in trainings))
    if options.trees:
        first, others = forests(options.budget)
        return Plan(choices=(*first, *others))
    candidates = own_candidates(data)
    size = Size(
        examples=examples,
        features=math.prod(data.input_shape),
        classes=candidates.num_classes,
        shape=data.input_shape if len(data.input_shape) > 1 else (),
    )
    return plan(size, options.budget, registry, trainings, fits=fits, whole=whole)


__all__ = [
    "FitOptions",
    "Fitted",
    "HeldOut",
    "Listener",
    "Quiet",
    "describe",
    "evaluate",
    "fit",
    "fit_and_report",
    "make_own_problem",
    "own_candidates",
]
