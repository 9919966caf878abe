"""Benchmark datasets and readers of common files."""

from __future__ import annotations

from wsl_builtins.datasets.digits import Digits
from wsl_builtins.datasets.mat import Mat
from wsl_builtins.datasets.npz import Npz
from wsl_builtins.datasets.torchvision_sets import Cifar10, Cifar100, FashionMnist, Kmnist, Mnist
from wsl_toolkit import Dataset
from wsl_toolkit.data.formats.readers import Csv, ImageFolder, Parquet, Xlsx

DATASETS: list[type[Dataset]] = [
    Digits,
    Mnist,
    FashionMnist,
    Kmnist,
    Cifar10,
    Cifar100,
    Mat,
    Npz,
    Csv,
    Parquet,
    Xlsx,
    ImageFolder,
]
