"""Fit choices to parts of a user's data: networks together, trees one by one, laws of the sets along with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator, Transform
from wsl_toolkit.data.dataset import Data, transform_inputs
from wsl_toolkit.data.problem import Change, CleanLabels, Problem, transformed
from wsl_toolkit.errors import ConfigError, DataError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import set_laws, trees
from wsl_toolkit.own_data.choices import Choice, NetworkChoice, TreesChoice, law_trees
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs.listing import HOME
from wsl_toolkit.runs.plans import choices_in
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import EpochRecord, predict
from wsl_toolkit.training.train import JobListener, Trained, TrainingJob, train
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints


class Listener(Protocol):
    """Whoever shows the progress of fitting."""

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """A training begins."""

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """An epoch of a training ended; several may be trained at once."""

    def judged(self, standing: Standing) -> None:
        """One kind of model was fitted and judged."""


@attrs.frozen(kw_only=True)
class Standing:
    """What held-out sets say of the best model so far, and how many choices they are yet to judge."""

    model: str
    loss: float
    covering_rate: float
    left: int


class Quiet:
    """A listener that says nothing."""

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """Say nothing."""

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """Say nothing."""

    def judged(self, standing: Standing) -> None:
        """Say nothing."""


@attrs.frozen(kw_only=True, eq=False)
class Learner:
    """What all fits of one call have in common."""

    data: Data
    registry: Registry
    estimator: Estimator
    seed: int
    transform: Transform | None = None
    """What happens to a training part's sets before anything learns from them."""
    inputs: nn.Module | None = None
    """The preprocessing that all parts have in common; None: each part learns its own."""
    listener: Listener = attrs.field(factory=Quiet)
    stop: StopRequest | None = None

    def fit(self, choices: Sequence[Choice], parts: Sequence[tuple[Tensor, Tensor]]) -> list[list[Made]]:
        """Return each choice fitted on each part: [parts][choices]; the second index of a part is held out."""
        kinds = list(self.fit_kinds(by_kind(choices), parts))
        return [list(itertools.chain(*own)) for own in zip(*kinds, strict=True)]

    def fit_kinds(
        self, kinds: Iterable[Sequence[Choice]], parts: Sequence[tuple[Tensor, Tensor]]
    ) -> Iterator[list[list[Made]]]:
        """Yield what `fit` returns for one kind of model after the other; a kind is asked for when its turn comes."""
        problems = [self._problem(part, held_out) for part, held_out in parts]
        if any(len(problem.train_candidates.labelled()) == 0 for problem in problems):
            raise DataError("every training example has all classes as candidates: there is nothing to learn from")
        errors: list[list[Exception | None]] = [[] for _ in problems]
        laws: list[dict[str, Tensor]] = [{} for _ in problems]
        for kind in kinds:
            networks = [choice for choice in kind if isinstance(choice, NetworkChoice)]
            for law in {choice.law for choice in networks} - {set_laws.LAWS[0]}:
                for problem, known in zip(problems, laws, strict=True):
                    if law not in known:  # no trees of this part learned it
                        known |= self._grown(law_trees(law), problem).laws
            found = self._train(networks, problems, laws)
            for place, of_problem in enumerate(errors):
                of_problem += [each.error for each in found[place * len(networks) : (place + 1) * len(networks)]]
            trained = iter(found)
            made = [
                [
                    self._grown(choice, problem)
                    if isinstance(choice, TreesChoice)
                    else attrs.evolve(_made(choice, problem, next(trained)), laws=known)
                    for choice in kind
                ]
                for problem, known in zip(problems, laws, strict=True)
            ]
            for own, known in zip(made, laws, strict=True):
                for each in own:
                    if isinstance(each.choice, TreesChoice):
                        known |= {
                            law: each.laws[law] for law in each.laws if law in (set_laws.LAWS[0], each.choice.law)
                        }
            yield made
        for of_problem in errors:
            if of_problem and all(of_problem) and of_problem[0] is not None:
                raise of_problem[0]

    def _problem(self, part: Tensor, held_out: Tensor) -> Problem:
        """Return the learning problem of a part; how many known labels the transform kept is counted for the report."""
        problem = make_own_problem(self.data, part, held_out, self.inputs)
        if self.transform is None:
            return problem
        assert isinstance(problem.train_x, Tensor)
        labels = known_labels(self.data)
        known = None if labels is None else labels[part]
        with attributed(self.registry, "transform", self.transform.name):
            sets, change = transformed(self.transform, problem.train_x, problem.train_candidates, self.seed, known)
        return attrs.evolve(problem, train_candidates=sets, change=change)

    def _train(
        self, choices: Sequence[NetworkChoice], problems: Sequence[Problem], laws: Sequence[Mapping[str, Tensor]]
    ) -> list[Trained]:
        """Train every network on every problem, problem by problem; those that differ in rates alone are stacked."""
        estimators = [{law: self._estimator(law, known) for law in {c.law for c in choices}} for known in laws]
        jobs = [
            TrainingJob(
                problem=problem if choice.training.watches else _unheld(problem),
                estimator=estimators[place][choice.law],
                backbone=choice.backbone,
                training=choice.training,
                seed=self.seed,
                listener=_Shown(self.listener if place == 0 else Quiet(), number, len(choices), choice.training),
            )
            for place, problem in enumerate(problems)
            for number, choice in enumerate(choices, start=1)
        ]
        if not jobs:
            return []
        with (
            attributed(self.registry, "backbone", choices[0].name),
            attributed(self.registry, "estimator", self.estimator.name),
        ):
            kept = choices_in(HOME, writes=HOME.is_dir())
            return train(jobs, stop=self.stop, keep_diverged=True, choices=kept)

    def _estimator(self, law: str, known: Mapping[str, Tensor]) -> Estimator:
        """Return what networks learn by under a law: the estimator that was asked for, or the law's likelihood."""
        uniform = set_laws.LAWS[0]
        if law == uniform or law not in known:
            return self.estimator
        return set_laws.LawLikelihood(chances=known[law], uniform=known[uniform])

    def _grown(self, choice: TreesChoice, problem: Problem) -> Made:
        assert isinstance(problem.train_x, Tensor)
        assert isinstance(problem.validation_x, Tensor)
        grown = trees.grow(
            problem.train_x,
            problem.train_candidates,
            choice.boosting,
            watch=problem.validation_x,
            stop=self.stop,
            counts=problem.weights,
        )
        made = Made(
            choice=choice,
            network=grown.ensembles[-1],
            transform=problem.transform,
            logits=grown.watched,
            grown=grown,
            laws=grown.laws,
            change=problem.change,
        )
        return attrs.evolve(made, rivals=self._rivals(made, problem)) if choice.compared else made

    def _rivals(self, made: Made, problem: Problem) -> Rivals | None:
        """Return what laws of the sets must beat, as far as it is learned from the training part."""
        assert isinstance(made.choice, TreesChoice)
        assert isinstance(problem.train_x, Tensor)
        assert isinstance(problem.validation_x, Tensor)
        if not made.laws or problem.validation_candidates is None:
            return None
        labelled = problem.train_candidates.labelled()
        logits = made.network(problem.train_x.flatten(1)[labelled]).double()
        mask, asked = problem.train_candidates.mask(labelled).cpu(), problem.validation_candidates.mask().cpu()
        inclusions = trees.grow_inclusions(
            problem.train_x,
            problem.train_candidates,
            made.choice.boosting,
            watch=problem.validation_x,
            stop=self.stop,
            counts=problem.weights,
        )
        uniform = made.laws[set_laws.LAWS[0]]
        return Rivals(
            recurring=set_laws.log_worth_of_recurring(logits, mask, uniform, asked),
            inclusions=tuple(set_laws.inclusion_losses(each, asked, uniform) for each in inclusions),
        )


@attrs.frozen(kw_only=True, eq=False)
class Rivals:
    """Other explanations of held-out sets than a law of the class, learned from one part, see `set_laws`."""

    recurring: Tensor
    """What log C(s) adds to log p of each set's candidates, [n, 1]."""
    inclusions: tuple[Tensor, ...]
    """The log loss of each set by inputs alone, [n], after each stage of the trees that look at them."""


@attrs.frozen(kw_only=True, eq=False)
class Made:
    """A choice that was fitted."""

    choice: Choice
    network: nn.Module
    transform: nn.Module
    logits: tuple[Tensor, ...]
    """Of the held-out examples: a network's, or the trees' after each stage."""
    grown: trees.Grown | None = None
    laws: Mapping[str, Tensor] = attrs.field(factory=dict)
    """Q [K, K] of laws of the sets that were learned from the same part, see `set_laws`."""
    rivals: Rivals | None = None
    change: Change | None = None
    """What a transform made of the sets that it learned from."""

    def at(self, stage: int, choice: Choice) -> Made:
        """Return it as it was after a stage."""
        network = self.network if self.grown is None else self.grown.ensembles[stage]
        return attrs.evolve(self, network=network, choice=choice)


def _unheld(problem: Problem) -> Problem:
    """Return a problem whose held-out examples are not looked at after each epoch."""
    return attrs.evolve(problem, validation_candidates=None)


def _made(choice: NetworkChoice, problem: Problem, trained: Trained) -> Made:
    device = next(trained.model.parameters()).device
    assert isinstance(problem.validation_x, Tensor)
    network = trained.model
    logits = predict(network, problem.validation_x.to(device)).cpu()
    if trained.error is not None:
        logits = torch.full_like(logits, math.nan)
    return Made(choice=choice, network=network, transform=problem.transform, logits=(logits,), change=problem.change)


def by_kind(choices: Iterable[Choice]) -> list[list[Choice]]:
    """Return neighbours of one kind of model together."""
    return [list(kind) for _, kind in itertools.groupby(choices, key=lambda choice: choice.name)]


class _Shown(JobListener):
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


def make_own_problem(data: Data, train: Tensor, validation: Tensor, inputs: nn.Module | None = None) -> Problem:
    """Return a learning problem on a user's own sets, without any true label in it; `inputs` is the preprocessing."""
    candidates = own_candidates(data)
    transform = data.fit_inputs(train) if inputs is None else inputs
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
        weights=None if data.weights is None else data.weights[train],
    )


def own_candidates(data: Data) -> CandidateSets:
    """Return the data's own candidate sets, or say that it has none."""
    if data.candidates is None:
        raise ConfigError(f"{data.name} has no candidate sets: name the column or the variable that holds them")
    return data.candidates


def known_labels(data: Data) -> Tensor | None:
    """Return the true labels that are known, -1 elsewhere, or None if there is none."""
    labels = data.y if data.y is not None else data.known_y
    return labels if labels is not None and bool((labels >= 0).any()) else None
