"""The contract of a dataset: the same sound data every time, and one clear line where it is missing."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
import torch

from wsl_toolkit.components import Dataset
from wsl_toolkit.data.dataset import Data, split
from wsl_toolkit.errors import WslError
from wsl_toolkit.testing.common import ComponentContract, global_randomness_untouched, stream


class DatasetContract(ComponentContract):
    """Give `component`, and `data_dir` if it reads files."""

    data_dir: ClassVar[Path | str | None] = None

    def test_it_loads_sound_data(self, component: Dataset, contract_data_dir: Path) -> None:
        """`Data` checks shapes, ranges and finiteness when it is made; the rest is checked here."""
        data = component.load(contract_data_dir)
        assert isinstance(data, Data), f"load returned {type(data).__name__}, not wsl_toolkit.Data"
        assert data.x.dtype in (torch.uint8, torch.float32, torch.float64), f"inputs are {data.x.dtype}"
        assert data.num_classes >= 2, f"there is {data.num_classes} class"
        assert data.class_names is None or len(data.class_names) == data.num_classes, (
            f"{len(data.class_names or ())} class names for {data.num_classes} classes"
        )
        if data.y is not None and data.candidates is None:  # a candidate that is never true is real data's own affair
            absent = sorted(set(range(data.num_classes)) - set(data.y.unique().tolist()))
            assert not absent, f"no example is of class {absent[0]}"

    def test_it_loads_the_same_data_every_time(self, component: Dataset, contract_data_dir: Path) -> None:
        """Without the global random generators."""
        with global_randomness_untouched(f"dataset {component.name}"):
            first, again = (component.load(contract_data_dir).digest() for _ in range(2))
        assert first == again, "two loads gave different data"

    def test_it_can_be_split_and_scaled(self, component: Dataset, contract_data_dir: Path) -> None:
        """As a run does, with parts held out for validation and, where there is no official one, for the test."""
        data = component.load(contract_data_dir)
        parts = split(data, 0.1, 0.2, stream(1))
        scaled = data.fit_inputs(parts.train)(data.x[parts.train][:64])
        assert bool(torch.isfinite(scaled).all()), "scaled inputs are not finite"

    def test_missing_files_are_said_in_words(self, component: Dataset, tmp_path: Path) -> None:
        """An empty data directory either does not matter, or is an error that the user can read."""
        try:
            component.load(tmp_path / "empty")
        except WslError:
            return
        except Exception as error:
            pytest.fail(f"an empty data directory gave {type(error).__name__}: {error}; raise DataError", pytrace=False)
