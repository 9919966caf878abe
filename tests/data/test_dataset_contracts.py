"""Every dataset that reads files keeps the contract of datasets, on real files where we have them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from PIL import Image

from wsl_builtins.datasets.mat import Mat
from wsl_builtins.datasets.npz import Npz
from wsl_builtins.datasets.torchvision_sets import FashionMnist
from wsl_toolkit.data.formats.readers import Csv, ImageFolder, Parquet, Xlsx
from wsl_toolkit.testing import DatasetContract


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """A directory of made files, and MNIST's successor and lost as they are."""
    root = tmp_path_factory.mktemp("files")
    (root / "FashionMNIST").symlink_to(data_dir / "FashionMNIST")
    (root / "lost.mat").symlink_to(data_dir / "pll" / "lost.mat")
    rng = np.random.default_rng(0)
    sets = rng.random((40, 3)) < 0.5
    sets[np.arange(40), np.arange(40) % 3] = True
    np.savez(root / "made.npz", x=rng.normal(size=(40, 4)), candidates=sets, y=np.arange(40) % 3)
    data = Npz(path=root / "made.npz").load(root)
    for table in (Csv(path=root / "made.csv"), Parquet(path=root / "made.parquet")):
        table.write(data, root)
    book = openpyxl.Workbook()
    for row in csv.reader((root / "made.csv").open(newline="")):
        book.active.append([float(cell) if cell.lstrip("-").replace(".", "").isdigit() else cell for cell in row])
    book.save(root / "made.xlsx")
    for i in range(40):
        path = root / "zoo" / f"animal {i % 3}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(path)
    return root


class TestFiles(DatasetContract):
    @pytest.fixture(
        params=[
            FashionMnist(),
            Mat(path=Path("lost.mat")),
            Npz(path=Path("made.npz")),
            Csv(path=Path("made.csv")),
            Parquet(path=Path("made.parquet")),
            Xlsx(path=Path("made.xlsx")),
            ImageFolder(path=Path("zoo"), size=8, cache=Path("cache")),
        ],
        ids=lambda component: component.name,
    )
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def contract_data_dir(self, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        return files
