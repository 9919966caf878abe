"""Files that users write, sound and wrong: configurations, studies, tables, arrays."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import mutations
import numpy as np
import torch
from fuzzing import Target

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.formats import sources
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies import parsing
from wsl_toolkit.system.toml_files import read_toml
from wsl_toolkit.training.config import from_dict

CONFIG = """
epochs = 3
lr = 0.05
scheduler = "cosine"
[generator]
name = "mcl-skewed"
alpha = 0.7
[estimator]
name = "ppl"
[backbone]
name = "mlp"
widths = [50, 50]
"""
STUDY = """
name = "small"
trials = 2
[[settings]]
dataset = "digits"
generator = { name = "mcl-skewed", alpha = 0.5 }
backbone = "linear"
[[methods]]
estimator = "ppl"
[[methods]]
estimator = "cc"
[search.space]
lr = [0.1, 0.01]
[training]
epochs = 3
"""


def small_data(*, names: bool) -> Data:
    """Nine examples of four features and three classes."""
    mask = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]] * 3, dtype=torch.bool)
    texts = ("left", "right", "né;e") if names else None
    x = torch.linspace(-2, 3, 36).reshape(9, 4)
    sets = CandidateSets.from_mask(mask, texts)
    return Data(name="small", x=x, y=torch.tensor([0, 1, 2] * 3), candidates=sets, num_classes=3, class_names=texts)


def targets(folder: Path) -> Iterator[Target]:
    """Configurations, studies, and data in every format that is written too."""
    registry = load_plugins().registry
    yield Target(
        name="config",
        suffix=".toml",
        samples=(CONFIG.encode(),),
        parse=lambda path: from_dict(read_toml(path), str(path)).resolved(registry),
        mutate=lambda dice: mutations.as_toml(dice, tomllib.loads(CONFIG)),
    )
    yield Target(
        name="study",
        suffix=".toml",
        samples=(STUDY.encode(),),
        parse=lambda path: parsing.from_dict(read_toml(path), str(path)),
        mutate=lambda dice: mutations.as_toml(dice, tomllib.loads(STUDY)),
    )
    for suffix in (".csv", ".npz", ".mat", ".parquet"):
        samples = []
        for number, data in enumerate((small_data(names=False), small_data(names=True))):
            path = folder / f"sample{number}{suffix}"
            sources.write(data, path, {}, registry)
            samples.append(path.read_bytes())
        yield Target(
            name=suffix[1:],
            suffix=suffix,
            samples=tuple(samples),
            parse=lambda path: sources.load(path, {}, registry, path.parent),
            mutate=_mutate_data(suffix, path),
        )


def _mutate_data(suffix: str, path: Path) -> Callable[[random.Random], bytes]:
    """How a user's data file goes wrong, from one that is sound."""
    if suffix == ".csv":
        return lambda dice: mutations.as_text(dice, path.read_text())
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return lambda dice: mutations.as_parquet(dice, pq.read_table(path))
    if suffix == ".npz":
        with np.load(path) as file:
            values = dict(file)
        return lambda dice: mutations.as_npz(dice, values)
    from scipy.io import loadmat

    values = {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
    return lambda dice: mutations.as_mat(dice, values)
