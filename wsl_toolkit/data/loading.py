"""Read a dataset as a run does: what it returns is `Data`, which checked itself when it was made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.components import Dataset
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import PluginError
from wsl_toolkit.plugins.places import defined_at
from wsl_toolkit.system.random_streams import watched


def load_data(dataset: Dataset, data_dir: Path) -> Data:
    """Return a dataset's data, with the long tail that it was asked for.

    Anything else than `Data` is refused, and data that a global random stream was drawn for.
    """
    load: Callable[[Path], Any] = dataset.load
    data, moved = watched(lambda: load(data_dir))
    wrong = f"drew from {moved}'s global random generator: seed one of its own" if moved else ""
    if not isinstance(data, Data):
        wrong = f"returned {type(data).__name__}, not wsl_toolkit.Data"
    if wrong:
        place = defined_at(type(dataset).load)
        at = f" ({type(dataset).__name__}.load, {place})" if place else ""
        raise PluginError(f"dataset {dataset.name}: load {wrong}{at}")
    found: Data = data
    return found if dataset.imbalance == 1 else attrs.evolve(found, imbalance=dataset.imbalance)
