"""Benchmark datasets and readers of common files."""

from __future__ import annotations

from wsl_builtins.datasets.community import (
    BirdSong,
    English,
    FgNet,
    Italian,
    Lost,
    Malagasy,
    Mirflickr,
    Msrcv2,
    SoccerPlayer,
    YahooNews,
)
from wsl_builtins.datasets.digits import Digits
from wsl_builtins.datasets.human import (
    AclCifar10,
    AclCifar20,
    AclMicroImageNet10,
    AclMicroImageNet20,
    ClCifar10,
    ClCifar20,
    ClMicroImageNet10,
    ClMicroImageNet20,
    PlCifar10,
)
from wsl_builtins.datasets.mat import Mat
from wsl_builtins.datasets.npz import Npz
from wsl_builtins.datasets.torchvision_sets import Cifar10, Cifar100, FashionMnist, Kmnist, Mnist
from wsl_toolkit import Dataset
from wsl_toolkit.data.formats.readers import Csv, ImageFolder, OpenMl, Parquet, Xlsx

DATASETS: list[type[Dataset]] = [
    Digits,
    Mnist,
    FashionMnist,
    Kmnist,
    Cifar10,
    Cifar100,
    PlCifar10,
    ClCifar10,
    ClCifar20,
    ClMicroImageNet10,
    ClMicroImageNet20,
    AclCifar10,
    AclCifar20,
    AclMicroImageNet10,
    AclMicroImageNet20,
    Lost,
    Msrcv2,
    BirdSong,
    SoccerPlayer,
    YahooNews,
    Mirflickr,
    FgNet,
    Italian,
    Malagasy,
    English,
    Mat,
    Npz,
    Csv,
    Parquet,
    Xlsx,
    ImageFolder,
    OpenMl,
]
