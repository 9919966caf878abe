"""Every dataset that reads files keeps the contract of datasets, on made files and on real ones."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from made_files import make_idx_files, partial_labels, write_v5, write_v73
from PIL import Image

from wsl_builtins.datasets.mat import Mat
from wsl_builtins.datasets.npz import Npz
from wsl_builtins.datasets.torchvision_sets import FashionMnist, Mnist
from wsl_toolkit.data.formats.readers import Csv, ImageFolder, Parquet, Xlsx
from wsl_toolkit.testing import DatasetContract


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of made files, one for each format."""
    root = tmp_path_factory.mktemp("files")
    make_idx_files(root / "FashionMNIST" / "raw")
    write_v5(root / "v5.mat", partial_labels(n=40))
    write_v73(root / "v73.mat", partial_labels(n=40), sparse=True)
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
            Mat(path=Path("v5.mat")),
            Mat(path=Path("v73.mat")),
            Npz(path=Path("made.npz")),
            Csv(path=Path("made.csv")),
            Parquet(path=Path("made.parquet")),
            Xlsx(path=Path("made.xlsx")),
            ImageFolder(path=Path("zoo"), size=8, cache=Path("cache")),
        ],
        ids=lambda component: getattr(component, "path", Path(component.name)).name,
    )
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def contract_data_dir(self, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        return files


class TestRealFiles(DatasetContract):
    @pytest.fixture(
        params=[
            pytest.param(Mnist(), marks=pytest.mark.data("MNIST"), id="mnist"),
            pytest.param(FashionMnist(), marks=pytest.mark.data("FashionMNIST"), id="fashion-mnist"),
            pytest.param(Mat(path=Path("pll/lost.mat")), marks=pytest.mark.data("pll/lost.mat"), id="lost"),
        ]
    )
    def component(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def contract_data_dir(self, data_dir: Path) -> Path:
        return data_dir
