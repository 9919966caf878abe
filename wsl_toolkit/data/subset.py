"""A part of the training data: drawn from a stream of its own, and never by true labels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data, take_share
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.labels.candidate_sets import CHUNK_CELLS, CandidateSets
from wsl_toolkit.system.random_streams import stream


def subset_size(subset: float, count: int) -> int:
    """Return how many of `count` examples a subset has: a share of them if it is below 1, all if it is 1."""
    if subset == 1:
        return count
    if subset < 1:
        size = round(subset * count)
        if size == 0:
            raise ConfigError(f"--subset {subset:g} of {count} training examples is none: give a larger share")
        return size
    if subset != int(subset):
        raise ConfigError(f"--subset {subset:g} is neither a share below 1 nor a whole number of examples")
    if subset > count:
        raise ConfigError(f"--subset {int(subset)} is more than the {count} training examples that there are")
    return int(subset)


def describe_subset(subset: float) -> str:
    """Return a subset as people read it: '1,000 training examples', '10 % of the training examples'."""
    return f"{100 * subset:g} % of the training examples" if subset < 1 else f"{int(subset):,} training examples"


def training_subset(data: Data, train: Tensor, subset: float, seed: int) -> Tensor:
    """Return a part of the training examples, in their order.

    Where the data has candidate sets of its own, each different set keeps its share of the examples, up to whole ones.
    Where they are yet to be drawn, the part is drawn at random: strata of true labels would tell what nobody knows.
    """
    size = subset_size(subset, len(train))
    if size == len(train):
        return train
    strata = None if data.candidates is None else _different_sets(data.candidates, train, len(data.x))
    return take_share(train, strata, size, stream(seed, "subset"))[0]


def _different_sets(candidates: CandidateSets, index: Tensor, count: int) -> Tensor:
    """Return a number for each example [n], the same for the same set; of those that `index` leaves out, 0."""
    parts = index.split(max(1, CHUNK_CELLS // candidates.num_classes))
    packed = np.concatenate([np.packbits(candidates.mask(part).cpu().numpy(), axis=1) for part in parts])
    rows = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, numbers = np.unique(rows, return_inverse=True)
    strata = torch.zeros(count, dtype=torch.long)
    strata[index] = torch.from_numpy(numbers.astype(np.int64))
    return strata
