"""What a dataset gives, and how it becomes training, validation and test parts."""

from __future__ import annotations

import hashlib
from typing import Literal

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.errors import DataError
from wsl_toolkit.labels import CandidateSets, check_labels

Normalisation = Literal["none", "per-feature", "per-channel"]


@attrs.frozen(kw_only=True, eq=False)
class Data:
    """Inputs [n, …] with true labels [n], candidate sets, or both; and a test part where there is an official one.

    `x` may be uint8 (images, scaled to 0..1 when used) or float32. `normalise` says over which dimensions
    mean and deviation are taken, always from the training part only.
    """

    name: str
    x: Tensor
    y: Tensor | None = None
    candidates: CandidateSets | None = None
    num_classes: int
    class_names: tuple[str, ...] | None = None
    test_x: Tensor | None = None
    test_y: Tensor | None = None
    normalise: Normalisation = "per-feature"

    def __attrs_post_init__(self) -> None:
        if len(self.x) == 0:
            raise DataError(f"{self.name}: there are no examples")
        if self.y is None and self.candidates is None:
            raise DataError(f"{self.name}: there are neither true labels nor candidate sets")
        for labels, inputs in ((self.y, self.x), (self.test_y, self.test_x)):
            if labels is not None and inputs is not None:
                check_labels(labels, self.num_classes, n=len(inputs))
        if self.candidates is not None and len(self.candidates) != len(self.x):
            raise DataError(f"{self.name}: {len(self.candidates)} candidate sets for {len(self.x)} examples")
        if self.x.is_floating_point() and not bool(torch.isfinite(self.x).all()):
            row = int((~torch.isfinite(self.x.flatten(1)).all(1)).nonzero()[0])
            raise DataError(f"{self.name}: example {row} has a value that is NaN or infinite")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.x.shape[1:])

    def digest(self) -> str:
        """Return a SHA-256 of inputs and labels, to know the same data again."""
        digest = hashlib.sha256()
        for tensor in (self.x, self.y, self.test_x, self.test_y):
            if tensor is not None:
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(np.ascontiguousarray(tensor.numpy()).data)
        if self.candidates is not None:
            digest.update(self.candidates.content_hash.encode())
        return digest.hexdigest()


@attrs.frozen(kw_only=True, eq=False)
class Split:
    """Which examples train, validate and test; `test` is None where the dataset has an official test part."""

    train: Tensor
    validation: Tensor
    test: Tensor | None


def split(data: Data, validation: float, test: float, rng: torch.Generator) -> Split:
    """Split by `rng`, stratified by true label where there is one; official test parts are left whole."""
    keep = torch.arange(len(data.x))
    test_index: Tensor | None = None
    if data.test_x is None:
        test_index, keep = _take_share(keep, data.y, test, rng)
        if len(test_index) == 0 or len(keep) == 0:
            raise DataError(f"{data.name}: {len(data.x)} examples are too few to hold out a test part of {test:g}")
    held_out, train = _take_share(keep, data.y, validation, rng)
    if len(train) == 0:
        raise DataError(f"{data.name}: nothing is left to train on after holding out {validation:g} for validation")
    return Split(train=train, validation=held_out, test=test_index)


def _take_share(index: Tensor, labels: Tensor | None, share: float, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a random share of `index` and the rest, both sorted, class by class where labels are known."""
    order = torch.randperm(len(index), generator=rng)
    if labels is None:
        taken = order[: round(share * len(index))]
    else:
        # Within each class the shuffled examples get ranks 0, 1, …; the first `share` of each class is taken.
        shuffled = labels[index[order]]
        by_class = torch.argsort(shuffled, stable=True)
        counts = torch.bincount(shuffled)
        starts = counts.cumsum(0) - counts
        rank = torch.arange(len(order)) - starts[shuffled[by_class]]
        taken = order[by_class[rank < (counts * share).round()[shuffled[by_class]]]]
    chosen = torch.zeros(len(index), dtype=torch.bool)
    chosen[taken] = True
    return index[chosen], index[~chosen]


@attrs.frozen(kw_only=True, eq=False)
class Scaler:
    """x -> (x - shift) * scale, fitted on training inputs only."""

    shift: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, x: Tensor, how: Normalisation) -> Scaler:
        """Take mean and deviation over examples, and over pixels for images; constant features stay put."""
        if how == "none":
            return cls(shift=torch.zeros(()), scale=torch.ones(()))
        dims = [0] if how == "per-feature" else [0, *range(2, x.ndim)]
        values = as_float(x)
        deviation, mean = torch.std_mean(values, dim=dims, keepdim=True, correction=0)
        scale = torch.where(deviation > 1e-8, 1 / deviation.clamp(min=1e-8), torch.ones_like(deviation))
        return cls(shift=mean[0], scale=scale[0])

    def __call__(self, x: Tensor) -> Tensor:
        """Scale inputs."""
        return (as_float(x) - self.shift.to(x.device)) * self.scale.to(x.device)


def as_float(x: Tensor) -> Tensor:
    """Return float32 inputs; bytes become 0..1."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()
