"""From a dataset to a learning problem: split, scaled, partially labelled; clean labels stay behind a wall.

A `Problem` is what training may see. Its `CleanLabels` are handed to evaluation only, and to an estimator only if it
declares that it needs them, in which case the candidate sets it gets are the singletons {y}.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator, Generator, Transform
from wsl_toolkit.data.dataset import Data, Split, split, transform_inputs
from wsl_toolkit.data.inputs import StreamedInputs, as_inputs
from wsl_toolkit.data.mapped import is_mapped
from wsl_toolkit.data.subset import training_subset
from wsl_toolkit.errors import ConfigError, PluginError
from wsl_toolkit.labels.candidate_sets import CHUNK_CELLS, CandidateSets
from wsl_toolkit.system.memory import MEMORY_SHARE, free_memory
from wsl_toolkit.system.random_streams import stream


@attrs.frozen(kw_only=True, eq=False)
class CleanLabels:
    """True labels of each part, -1 where one is not known; for evaluation."""

    train: Tensor | None
    validation: Tensor | None
    test: Tensor | None


@attrs.frozen(kw_only=True)
class Change:
    """What a transform did to candidate sets; evaluation alone reads it."""

    size_before: float
    """The mean size of the sets as they were."""
    size_after: float
    """The mean size of what the transform made of them."""
    true_label_kept: float | None
    """The share of the examples whose set held the true label and still does; None where no label is known."""


@attrs.frozen(kw_only=True, eq=False)
class Problem:
    """Inputs and candidate sets of one seed, scaled by the training part."""

    train_x: Tensor | StreamedInputs
    train_candidates: CandidateSets
    validation_x: Tensor | StreamedInputs
    validation_candidates: CandidateSets | None
    test_x: Tensor | StreamedInputs
    clean: CleanLabels
    transform: nn.Module
    """What turns the data's inputs into the network's, learned from the training part; deployed models carry it."""
    num_classes: int
    input_shape: tuple[int, ...]
    class_counts: Tensor | None = None
    """How many training examples each class has, where a long tail was made; true labels, for evaluation."""
    class_values: Tensor | None = None
    """The number that each class stands for, where classes are ordered numbers; for evaluation."""
    weights: Tensor | None = None
    """How much each training example counts; None: all alike."""
    extractor: nn.Module | None = None
    """The frozen network whose features `transform` takes, where there is one."""
    change: Change | None = None
    """What a transform made of the training part's sets, where there was one."""

    @property
    def whole_transform(self) -> nn.Module:
        """What turns inputs as their dataset has them into the network's, through a frozen network if there is one."""
        return self.transform if self.extractor is None else nn.Sequential(self.extractor, self.transform)


PARTS = ("train", "validation", "test")


def make_problem(
    data: Data,
    generator: Generator | None,
    *,
    seed: int,
    validation: float,
    test: float,
    subset: float = 1.0,
    fold: tuple[int, int] | None = None,
    clean: Collection[str] = PARTS,
    sibling: Problem | None = None,
    transform: Transform | None = None,
) -> Problem:
    """Split, scale and label one seed's data; the estimator has no say in it, so methods share the same sets.

    `subset` keeps a part of the training examples, as `training_subset` says; their candidate sets are those that they
    have without it, unless a generator looks at the inputs, whose scale is learned from the part. `fold` (i, k)
    validates on the i-th of k parts of everything but the test part. `clean` names the parts whose true labels the
    problem carries: what must not see test labels gets a problem that has none, nor test inputs. `sibling` is a problem
    that differs in its generator or transform alone: its inputs, which are the same, are shared. `transform` changes
    the training part's sets; held-out ones stay as they are, so that it cannot make a measure of itself look better.
    """
    parts = split(data, validation, test, stream(seed, "split"))
    if fold is not None:
        parts = _folded(parts, *fold, seed)
    known = _known(parts)
    parts = attrs.evolve(parts, train=training_subset(data, parts.train, subset, seed))
    scaled = _ScaledParts.of(data, parts, clean) if sibling is None else _ScaledParts.like(sibling)
    candidates = _candidates(data, generator, known, parts.train, scaled.transform, seed)
    place = torch.full((len(data.x),), -1)
    place[known] = torch.arange(len(known))
    held_out = candidates.take(place[parts.validation]) if len(parts.validation) else None
    labels = _clean_labels(data, parts, clean)
    sets, change = candidates.take(place[parts.train]), None
    if transform is not None:
        before = sets
        x = (
            scaled.train
            if isinstance(scaled.train, Tensor)
            else transform_inputs(scaled.transform, data.x, parts.train)
        )
        sets, change = transformed(transform, x, before, seed, labels.train)
    return Problem(
        train_x=scaled.train,
        train_candidates=sets,
        validation_x=scaled.validation,
        validation_candidates=held_out,
        test_x=scaled.test,
        clean=labels,
        transform=scaled.transform,
        num_classes=data.num_classes,
        input_shape=as_inputs(scaled.train).shape,
        class_counts=_class_counts(data, parts, clean),
        class_values=None if data.class_values is None else torch.tensor(data.class_values),
        weights=_rows(data.weights, parts.train),
        extractor=None if data.embedding is None else data.embedding.extractor,
        change=change,
    )


@attrs.frozen(kw_only=True, eq=False)
class _ScaledParts:
    """Each part's inputs, scaled by the training part."""

    transform: nn.Module
    train: Tensor | StreamedInputs
    validation: Tensor | StreamedInputs
    test: Tensor | StreamedInputs

    @classmethod
    def of(cls, data: Data, parts: Split, clean: Collection[str]) -> _ScaledParts:
        """Learn the scale from the training part, and apply it to all."""
        transform = data.fit_inputs(parts.train)
        if "test" not in clean:
            test = _inputs(transform, data.x[:0])
        elif parts.test is None:
            assert data.test_x is not None  # split leaves `test` out only where there is an official part
            test = _inputs(transform, data.test_x)
        else:
            test = _inputs(transform, data.x, parts.test)
        train, validation = (_inputs(transform, data.x, part) for part in (parts.train, parts.validation))
        return cls(transform=transform, train=train, validation=validation, test=test)

    @classmethod
    def like(cls, sibling: Problem) -> _ScaledParts:
        """Return a problem's own."""
        return cls(
            transform=sibling.transform, train=sibling.train_x, validation=sibling.validation_x, test=sibling.test_x
        )


def _class_counts(data: Data, parts: Split, clean: Collection[str]) -> Tensor | None:
    if data.imbalance == 1 or data.y is None or "test" not in clean:
        return None
    return torch.bincount(data.y[parts.train], minlength=data.num_classes)


def _clean_labels(data: Data, parts: Split, clean: Collection[str]) -> CleanLabels:
    """Return the true labels of the parts that may have them."""
    labels = data.y if data.y is not None else data.known_y
    test = data.test_y if parts.test is None else _rows(labels, parts.test)
    return CleanLabels(
        train=_rows(labels, parts.train) if "train" in clean else None,
        validation=_rows(labels, parts.validation) if "validation" in clean else None,
        test=test if "test" in clean else None,
    )


def _inputs(transform: nn.Module, x: Tensor, index: Tensor | None = None) -> Tensor | StreamedInputs:
    """Return a part's inputs: bytes as they are, numbers transformed once if they then fit into memory."""
    if x.dtype == torch.uint8:
        return StreamedInputs(x, transform, index=index, workers=1 if is_mapped(x) else 0)
    count = len(x) if index is None else len(index)
    if 4 * count * x.shape[1:].numel() <= free_memory() // MEMORY_SHARE:
        return transform_inputs(transform, x, index)
    return StreamedInputs(x, transform, index=index)


def _known(parts: Split) -> Tensor:
    """Return all examples outside the test part, in their order."""
    return torch.cat([parts.train, parts.validation]).sort().values


def _folded(parts: Split, number: int, of: int, seed: int) -> Split:
    """Cut training and validation parts anew, at random and by no label: fold `number` of `of` validates."""
    known = _known(parts)
    if not 0 <= number < of <= len(known):
        raise ConfigError(f"fold {number} of {of} cannot be cut from {len(known)} examples")
    held_out = torch.zeros(len(known), dtype=torch.bool)
    held_out[torch.randperm(len(known), generator=stream(seed, "folds"))[number::of]] = True
    return Split(train=known[~held_out], validation=known[held_out], test=parts.test)


def _candidates(
    data: Data, generator: Generator | None, known: Tensor, train: Tensor, transform: nn.Module, seed: int
) -> CandidateSets:
    """Return the sets of all examples outside the test part: the data's own, or drawn."""
    if data.candidates is not None:
        return data.candidates.take(known)
    if generator is None or data.y is None:
        raise ConfigError(f"dataset {data.name} has no candidate sets of its own: choose a --generator")
    raw = data.raw  # sets belong to the examples, not to their features: a frozen network does not change them
    if not generator.reads_inputs():
        x = torch.zeros(()).expand(len(known), *raw.x.shape[1:])
    else:
        x = transform_inputs(transform if raw is data else raw.fit_inputs(train), raw.x, known)
    sets = generator.sample(x, data.y[known], data.num_classes, stream(seed, "labels"))
    return sets.named(data.class_names)


def transformed(
    transform: Transform, x: Tensor, before: CandidateSets, seed: int, labels: Tensor | None
) -> tuple[CandidateSets, Change]:
    """Return what a transform makes of candidate sets, one for each example, and how they changed by known labels."""
    with torch.random.fork_rng(devices=[]):
        sets = transform.apply(x, before, stream(seed, "transform"))
    if not isinstance(sets, CandidateSets):
        raise PluginError(f"transform {transform.name} must return CandidateSets, not {type(sets).__name__}")
    if (len(sets), sets.num_classes) != (len(before), before.num_classes):
        raise PluginError(
            f"transform {transform.name} must return {len(before)} sets of {before.num_classes} classes, not "
            f"{len(sets)} of {sets.num_classes}: to leave an example out, give it the full set"
        )
    return sets.named(before.class_names), _change(before, sets, labels)


def _change(before: CandidateSets, after: CandidateSets, labels: Tensor | None) -> Change:
    """Return what a transform did, as far as labels are known."""
    kept = None
    if labels is not None and bool((known := (labels >= 0).nonzero().flatten()).numel()):
        had, has = (_holds(sets, labels, known) for sets in (before, after))
        kept = float(has[had].double().mean()) if bool(had.any()) else None
    return Change(size_before=before.mean_size, size_after=after.mean_size, true_label_kept=kept)


def _holds(sets: CandidateSets, labels: Tensor, index: Tensor) -> Tensor:
    """Return of some examples whether their sets hold their labels."""
    parts = index.split(max(1, CHUNK_CELLS // sets.num_classes))
    return torch.cat([sets.mask(part).gather(1, labels[part].unsqueeze(1)).squeeze(1) for part in parts])


def training_candidates(problem: Problem, estimator: Estimator) -> CandidateSets:
    """Return the sets that an estimator learns from: the singletons {y} only if it declares that it needs them."""
    if not estimator.reads_true_labels():
        return problem.train_candidates
    if problem.clean.train is None or bool((problem.clean.train < 0).any()):
        raise ConfigError(f"estimator {estimator.name} needs true labels, and this dataset does not have all of them")
    return CandidateSets.from_labels(problem.clean.train, problem.num_classes)


def _rows(labels: Tensor | None, index: Tensor) -> Tensor | None:
    return None if labels is None else labels[index]
