"""What a dataset gives, and how it becomes training, validation and test parts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import attrs
import numpy as np
import torch
from torch import Tensor, nn

from wsl_toolkit.data.mapped import let_go
from wsl_toolkit.data.weights import as_weights
from wsl_toolkit.errors import DataError, LabelError
from wsl_toolkit.labels.annotators import Annotator
from wsl_toolkit.labels.candidate_sets import CandidateSets, check_labels

if TYPE_CHECKING:
    from wsl_toolkit.data.embedding import Embedding
    from wsl_toolkit.data.formats.understanding import Understanding

Normalisation = Literal["none", "per-feature", "min-max", "per-channel"]
"""What is done to inputs: nothing; each feature standardised, or brought to 0..1; each channel standardised."""

INPUT_TYPES = (torch.uint8, torch.float32, torch.float64)

CHUNK_CELLS = 2**22
"""Inputs are measured and transformed in chunks of about this many numbers, to need little memory of their own."""


class Preprocessor(Protocol):
    """How raw inputs become a network's, where a mean and a deviation will not do: a table's columns, for one."""

    def fit(self, x: Tensor) -> nn.Module:
        """Learn from training inputs alone; return a module that maps raw inputs to float32 ones."""

    def problem(self, x: Tensor) -> str | None:
        """Return what is wrong with raw inputs, such as an infinite value and its row and column, or None."""


@attrs.frozen(kw_only=True, eq=False)
class Data:
    """Inputs [n, …] with true labels [n], candidate sets, or both; and a test part where there is an official one.

    `x` is raw: uint8 (images, [n, C, H, W]), float32 or float64. Everything that is learned about it (means, medians,
    the categories of a column) is learned by `fit_inputs` from the training part only, which is why a table's
    missing values and category codes are still in `x`, and `normalise` says what to do with them.
    """

    name: str
    x: Tensor
    y: Tensor | None = None
    candidates: CandidateSets | None = None
    num_classes: int
    class_names: tuple[str, ...] | None = None
    test_x: Tensor | None = None
    test_y: Tensor | None = None
    normalise: Normalisation | Preprocessor = "per-feature"
    class_values: tuple[float, ...] | None = None
    """The number that each class stands for, such as an age, where classes are ordered numbers; for evaluation."""
    known_y: Tensor | None = None
    """True labels where only some are known, -1 elsewhere; `y` is for complete ones."""
    ids: tuple[str, ...] | None = None
    """What the user calls each example, all different."""
    imbalance: float = 1.0
    """How many times as many examples the first class keeps as the last, of all but the test part; 1: all are kept."""
    annotators: tuple[Annotator, ...] = ()
    """What each of several annotators said, where the candidate sets are made of that."""
    weights: Tensor | None = None
    """How much each example counts in training, [n], none negative; None: all alike."""
    understood: Understanding | None = None
    """What a reader made of a user's table: how it is written, what each column is, what looks wrong."""
    embedding: Embedding | None = None
    """Where `x` are features that a frozen network gave: the data that it was given, and the network."""

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.x.shape[1:]))
        facts = [f"{len(self.x):,} examples of {shape} {str(self.x.dtype).removeprefix('torch.')}"]
        facts.append(f"{self.num_classes} classes")
        if self.y is not None:
            facts.append("true labels")
        elif self.known_y is not None:
            facts.append(f"{int((self.known_y >= 0).sum()):,} true labels")
        if self.candidates is not None:
            facts.append(f"candidate sets of mean size {self.candidates.mean_size:.2f}")
        if self.test_x is not None:
            facts.append(f"test part of {len(self.test_x):,}")
        return f"Data({self.name}: {', '.join(facts)})"

    def __attrs_post_init__(self) -> None:
        self._check_types()
        if len(self.x) == 0:
            raise DataError(f"{self.name}: there are no examples")
        if self.y is None and self.candidates is None:
            raise DataError(f"{self.name}: there are neither true labels nor candidate sets")
        if self.imbalance < 1 or (self.imbalance > 1 and self.y is None):
            raise DataError(
                f"{self.name}: an imbalance of {self.imbalance:g} must be at least 1, and needs true labels"
            )
        if self.num_classes < 2:
            raise DataError(f"{self.name}: there is only {self.num_classes} class; at least 2 are needed")
        for labels, inputs in ((self.y, self.x), (self.test_y, self.test_x)):
            if labels is not None and inputs is not None:
                self._check_labels(labels, inputs, unknown=False)
        if self.known_y is not None:
            self._check_labels(self.known_y, self.x, unknown=True)
        if isinstance(self.normalise, str) and self.normalise not in get_args(Normalisation):
            known = ", ".join(get_args(Normalisation))
            raise DataError(f"{self.name}: normalise must be one of {known}, not {self.normalise!r}")
        if self.candidates is not None and len(self.candidates) != len(self.x):
            raise DataError(f"{self.name}: {len(self.candidates)} candidate sets for {len(self.x)} examples")
        if self.candidates is not None and self.candidates.num_classes != self.num_classes:
            raise DataError(
                f"{self.name}: candidate sets over {self.candidates.num_classes} classes for {self.num_classes} classes"
            )
        if self.test_x is not None and self.test_x.shape[1:] != self.x.shape[1:]:
            raise DataError(
                f"{self.name}: test examples have shape {tuple(self.test_x.shape[1:])}, training examples "
                f"{tuple(self.x.shape[1:])}"
            )
        self._check_ids()
        self._check_annotators()
        if self.weights is not None:
            as_weights(self.weights, len(self.x), self.name)
        for part, inputs in (("example", self.x), ("test example", self.test_x)):
            if inputs is None:
                continue
            problem = _not_finite(inputs) if isinstance(self.normalise, str) else self.normalise.problem(inputs)
            if problem:
                raise DataError(f"{self.name}: {part} {problem}")

    def _check_types(self) -> None:
        """Refuse what is no tensor, set or number of the kind that everything after this counts on."""
        for name in ("x", "y", "test_x", "test_y", "known_y", "weights"):
            value = getattr(self, name)
            if not isinstance(value, Tensor) and (value is not None or name == "x"):
                raise DataError(f"{self.name}: {name} must be a torch tensor, not {type(value).__name__}")
        for name, inputs in (("inputs", self.x), ("test inputs", self.test_x)):
            if inputs is not None and inputs.dtype not in INPUT_TYPES:
                known = ", ".join(str(each).removeprefix("torch.") for each in INPUT_TYPES)
                raise DataError(f"{self.name}: {name} are {inputs.dtype}; they must be one of {known}")
        if self.x.ndim < 2:
            raise DataError(f"{self.name}: inputs have shape {tuple(self.x.shape)}; they must be [n, …]")
        if self.candidates is not None and not isinstance(self.candidates, CandidateSets):
            raise DataError(f"{self.name}: candidates must be CandidateSets, not {type(self.candidates).__name__}")
        if type(self.num_classes) is not int:
            raise DataError(f"{self.name}: num_classes must be a whole number, not {self.num_classes!r}")
        if self.test_x is None and self.test_y is not None:
            raise DataError(f"{self.name}: there are test labels without test inputs")
        values = self.class_values
        if values is not None and (len(values) != self.num_classes or not all(map(math.isfinite, values))):
            raise DataError(f"{self.name}: class_values must be {self.num_classes} finite numbers, one for each class")
        if self.class_names is not None and len(self.class_names) != self.num_classes:
            raise DataError(f"{self.name}: {len(self.class_names)} class names for {self.num_classes} classes")

    def _check_labels(self, labels: Tensor, inputs: Tensor, *, unknown: bool) -> None:
        """Refuse labels out of range; where `unknown`, -1 stands for a label that is not known."""
        allowed = torch.where(labels == -1, 0, labels) if unknown and not labels.is_floating_point() else labels
        try:
            check_labels(allowed, self.num_classes, n=len(inputs))
        except LabelError as error:
            raise LabelError(f"{self.name}: {error}") from None

    def _check_ids(self) -> None:
        if self.ids is None:
            return
        if len(self.ids) != len(self.x):
            raise DataError(f"{self.name}: {len(self.ids)} ids for {len(self.x)} examples")
        if len(set(self.ids)) != len(self.ids):
            seen: dict[str, int] = {}
            for row, name in enumerate(self.ids):
                if name in seen:
                    raise DataError(f"{self.name}: examples {seen[name]} and {row} have the same id {name!r}")
                seen[name] = row

    def _check_annotators(self) -> None:
        names = [one.name for one in self.annotators]
        if len(set(names)) != len(names):
            raise DataError(f"{self.name}: two annotators are called {max(names, key=names.count)!r}")
        for one in self.annotators:
            sizes = (len(one.sets), one.sets.num_classes, tuple(one.answered.shape))
            if sizes != (len(self.x), self.num_classes, (len(self.x),)):
                raise DataError(
                    f"{self.name}: annotator {one.name!r} has {sizes[0]} sets of {sizes[1]} classes, for {len(self.x)} "
                    f"examples and {self.num_classes} classes"
                )

    def with_candidates(self, candidates: CandidateSets) -> Data:
        """Return the same data with these candidate sets to learn from; its true labels are then for evaluation."""
        return attrs.evolve(self, candidates=candidates)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one raw example; a preprocessor's output may have another."""
        return tuple(self.x.shape[1:])

    @property
    def strata(self) -> Tensor | None:
        """What splits are stratified by: true labels if sets are drawn from them anyway, else nothing.

        Where the data brings candidate sets of its own, true labels are for evaluation alone: other labels must not
        give another training part.
        """
        return self.y if self.candidates is None else None

    def fit_inputs(self, train: Tensor) -> nn.Module:
        """Learn from the examples `train` alone what turns raw inputs into the network's float32 ones."""
        if self.normalise == "per-channel":
            return Scaler.fit(self.x, self.normalise, train)  # images may be too many to copy
        inputs = self.x[train]
        return Scaler.fit(inputs, self.normalise) if isinstance(self.normalise, str) else self.normalise.fit(inputs)

    def digest(self) -> str:
        """Return a SHA-256 of inputs, labels and what the inputs mean, to know the same data again.

        Features are known by what they were made of: computed anew elsewhere, they may differ in their last bits.
        """
        if self.embedding is not None:
            return self.embedding.digest()
        digest = hashlib.sha256(str(self.normalise).encode())
        for tensor in (self.x, self.y, self.test_x, self.test_y, self.known_y):
            if tensor is not None:
                hash_rows(digest, tensor)
        if self.candidates is not None:
            digest.update(self.candidates.content_hash.encode())
        if self.weights is not None:
            digest.update(b"weights" + self.weights.double().numpy().tobytes())
        if self.imbalance != 1:
            digest.update(f"imbalance {self.imbalance!r}".encode())
        return digest.hexdigest()

    @property
    def raw(self) -> Data:
        """The data as its dataset gave it: this one, unless its inputs are features of others."""
        return self if self.embedding is None else self.embedding.raw


def _not_finite(x: Tensor) -> str | None:
    """Return the first value that is NaN or infinite, with its place, or None."""
    if not x.is_floating_point():
        return None
    step = _rows_in_a_chunk(x)
    for start in range(0, len(x), step):
        wrong = ~torch.isfinite(x[start : start + step])
        if bool(wrong.any()):
            row, *place = (int(i) for i in wrong.nonzero()[0])
            where = f"feature {place[0]}" if len(place) == 1 else f"position {tuple(place)}"
            return f"{start + row} has {float(x[start + row][tuple(place)])} at {where}: NaN and infinity mean nothing"
    return None


@attrs.frozen(kw_only=True, eq=False)
class Split:
    """Which examples train, validate and test; `test` is None where the dataset has an official test part."""

    train: Tensor
    validation: Tensor
    test: Tensor | None


def split(data: Data, validation: float, test: float, rng: torch.Generator) -> Split:
    """Split by `rng`, stratified where `Data.strata` allows it; official test parts are left whole."""
    keep = torch.arange(len(data.x))
    test_index: Tensor | None = None
    if data.test_x is None:
        test_index, keep = _take_share(keep, data.strata, test, rng)
        if len(test_index) == 0 or len(keep) == 0:
            raise DataError(f"{data.name}: {len(data.x)} examples are too few to hold out a test part of {test:g}")
    if data.imbalance > 1:
        keep = _thinned(keep, data, rng)
    held_out, train = _take_share(keep, data.strata, validation, rng)
    if len(train) == 0:
        raise DataError(f"{data.name}: nothing is left to train on after holding out {validation:g} for validation")
    return Split(train=train, validation=held_out, test=test_index)


def long_tail(counts: Tensor, ratio: float) -> Tensor:
    """Return how many examples each class keeps: n_k ∝ ratio^(-k/(K-1)), at least 1, as many as the classes allow.

    The profile is that of the long-tailed variants of CIFAR (Cui et al., 2019), as large as it can be, so that the
    first class keeps `ratio` times as many examples as the last, up to whole examples, however large the classes were.
    """
    share = ratio ** (-torch.arange(len(counts), dtype=torch.float64) / (len(counts) - 1))
    largest = float((counts / share).min())
    return (largest * share + 1e-9).floor().long().clamp(min=1)


def _thinned(index: Tensor, data: Data, rng: torch.Generator) -> Tensor:
    """Return a random part of `index`, sorted, whose classes have a long tail."""
    assert data.y is not None
    counts = torch.bincount(data.y[index], minlength=data.num_classes)
    missing = (counts == 0).nonzero().flatten()
    if len(missing):
        raise DataError(f"{data.name}: class {int(missing[0])} has no examples, so that no long tail can be made")
    order = index[torch.randperm(len(index), generator=rng)]
    by_class = order[torch.argsort(data.y[order], stable=True)]
    rank = torch.arange(len(index)) - (counts.cumsum(0) - counts)[data.y[by_class]]
    return by_class[rank < long_tail(counts, data.imbalance)[data.y[by_class]]].sort().values


def take_share(index: Tensor, strata: Tensor | None, total: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return `total` random examples of `index` and the rest, both sorted; of each stratum its share, if there are."""
    return _take(index, strata, total / len(index), total, rng)


def _take_share(index: Tensor, strata: Tensor | None, share: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a random share of `index` and the rest, both sorted, class by class where classes are known."""
    return _take(index, strata, share, round(share * len(index)), rng)


def _take(
    index: Tensor, strata: Tensor | None, share: float, total: int, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(index), generator=rng)
    if strata is None:
        taken = order[:total]
    else:
        # Within each class the shuffled examples get ranks 0, 1, …; the first `quota` of each class are taken.
        shuffled = strata[index[order]]
        by_class = torch.argsort(shuffled, stable=True)
        counts = torch.bincount(shuffled)
        starts = counts.cumsum(0) - counts
        rank = torch.arange(len(order)) - starts[shuffled[by_class]]
        quota = _quotas(counts, share, total, rng)
        taken = order[by_class[rank < quota[shuffled[by_class]]]]
    chosen = torch.zeros(len(index), dtype=torch.bool)
    chosen[taken] = True
    return index[chosen], index[~chosen]


def _quotas(counts: Tensor, share: float, total: int, rng: torch.Generator) -> Tensor:
    """Return how many of each class to take, `total` in all: whole parts, then the largest remainders.

    Rounding each class by itself would take nothing from data of many small classes.
    """
    exact = counts.double() * share
    quota = exact.floor().long()
    # Ties are broken at random, so that no class is preferred for its place in the list.
    shuffled = torch.randperm(len(counts), generator=rng)
    largest_first = shuffled[torch.argsort((exact - quota)[shuffled], descending=True, stable=True)]
    quota[largest_first[: total - int(quota.sum())]] += 1
    return quota


class Scaler(nn.Module):
    """x -> (x - shift) / spread in float32, fitted on training inputs only; a module, so that models can carry it."""

    shift: Tensor
    spread: Tensor

    def __init__(self, shift: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("spread", spread)

    @classmethod
    def fit(cls, x: Tensor, how: Normalisation, index: Tensor | None = None) -> Scaler:
        """Take statistics over examples, or over those of `index`; constant features stay put."""
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        if how == "none":
            return cls(torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype))
        if how == "per-channel":
            shift, spread = _channel_statistics(x, torch.arange(len(x)) if index is None else index)
        else:
            statistics = _column_ranges if how == "min-max" else column_statistics
            shift, spread = statistics(x if index is None else x[index])
        return cls(shift.to(dtype), spread.to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Scale inputs; bytes become 0..1 first."""
        return as_float(x).sub(self.shift).div_(self.spread).float()


def column_statistics(x: Tensor, names: Sequence[str] | None = None) -> tuple[Tensor, Tensor]:
    """Return mean and spread of every feature in float64, by scikit-learn's rules: 1 is the spread of a constant."""
    from sklearn.preprocessing import StandardScaler

    columns = x.flatten(1)
    mean = torch.empty(columns.shape[1], dtype=torch.float64)
    spread = torch.empty_like(mean)
    block = max(1, CHUNK_CELLS // len(columns))  # columns are independent of each other
    for start in range(0, columns.shape[1], block):
        part = slice(start, start + block)
        with np.errstate(all="ignore"):
            scaler = StandardScaler().fit(as_float(columns[:, part]).double().numpy())
        mean[part] = torch.from_numpy(scaler.mean_)
        spread[part] = torch.from_numpy(scaler.scale_)
    overflow = (~torch.isfinite(mean) | ~torch.isfinite(spread)).nonzero().flatten()
    if len(overflow):
        which = int(overflow[0])
        raise DataError(f"{names[which] if names else f'feature {which}'} has values too large to take a mean of")
    return mean.view(x.shape[1:]), spread.view(x.shape[1:])


def _column_ranges(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least value of every feature, and how far the largest is above it: 1 for a constant."""
    low, high = (as_float(bound) for bound in torch.aminmax(x, dim=0))
    spread = high - low
    if bool(spread.isinf().any()):
        which = int(spread.flatten().isinf().nonzero()[0])
        raise DataError(f"feature {which} has values too far apart to be scaled")
    return low, torch.where(spread == 0, 1, spread)


def _channel_statistics(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and spread of every channel of some images in float64 [C, 1, …], in two passes, chunk by chunk."""
    dims = [0, *range(2, x.ndim)]
    count = len(index) * x.shape[2:].numel()
    parts = index.split(_rows_in_a_chunk(x))
    nothing = torch.zeros((), dtype=torch.float64)
    mean = (
        sum((as_float(part).sum(dims, keepdim=True, dtype=torch.float64) for part in picked(x, parts)), nothing) / count
    )
    squares = ((as_float(part) - mean).square_().sum(dims, keepdim=True) for part in picked(x, parts))
    deviation = (sum(squares, nothing) / count).sqrt()
    constant = deviation <= 1e-10 * mean.abs()  # all that rounding leaves of a channel that never changes
    return mean[0], torch.where(constant, 1, deviation)[0]


def hash_rows(digest: hashlib._Hash, x: Tensor) -> None:
    """Add a tensor to a digest: its type, its shape, its numbers."""
    digest.update(f"{x.dtype}{tuple(x.shape)}".encode())
    step = _rows_in_a_chunk(x)
    for rows in picked(x, (slice(start, start + step) for start in range(0, len(x), step))):
        digest.update(np.ascontiguousarray(rows.numpy()).data)


def picked(x: Tensor, parts: Iterable[Tensor | slice]) -> Iterator[Tensor]:
    """Return rows for each of several indices in turn; what was read of a mapped file is let go again."""
    for part in parts:
        yield x[part]
        let_go(x)


def transform_inputs(transform: nn.Module, x: Tensor, index: Tensor | None = None) -> Tensor:
    """Return the network's inputs for some examples, or for all; never more than a chunk of raw ones is copied."""
    step = _rows_in_a_chunk(x)
    count = len(x) if index is None else len(index)
    parts = (slice(i, i + step) if index is None else index[i : i + step] for i in range(0, count, step))
    out: Tensor | None = None
    filled = 0
    with torch.no_grad():
        for rows in picked(x, parts):
            piece = transform(rows)
            if out is None:
                out = torch.empty(count, *piece.shape[1:], dtype=piece.dtype, device=piece.device)
            out[filled : filled + len(piece)] = piece
            filled += len(piece)
    return transform(x[:0]) if out is None else out


def as_float(x: Tensor) -> Tensor:
    """Return floating-point inputs; bytes become 0..1."""
    if x.dtype == torch.uint8:
        return x.float().div_(255)
    return x if x.is_floating_point() else x.float()


def _rows_in_a_chunk(x: Tensor) -> int:
    return max(1, CHUNK_CELLS // max(1, x.shape[1:].numel()))
