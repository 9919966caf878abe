"""Image benchmarks through torchvision: a local copy below the data directory, or a checksummed download."""

from __future__ import annotations

import math
import os
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_toolkit import Dataset, param
from wsl_toolkit.errors import DataError, one_line

if TYPE_CHECKING:
    from torch import Tensor

    from wsl_toolkit import Data


@attrs.frozen(kw_only=True)
class TorchvisionImages(Dataset):
    """What the benchmarks share: the official parts, images as bytes, means per channel."""

    source: ClassVar[str]
    """The class of torchvision.datasets."""
    folder: ClassVar[str]
    """Where torchvision keeps the files below its root."""

    download: bool = param(False, help="fetch the files, checksummed, if they are not below the data directory")
    examples: int | None = param(
        None,
        help="train on the first so many examples only (the files' order is random); the test part stays whole",
        ge=1,
    )

    def load(self, data_dir: Path) -> Data:
        import torch

        from wsl_toolkit import Data

        if self.download and not (data_dir / self.folder).exists():
            self._fetch(data_dir)
        train, test = self._open(data_dir)
        y = torch.as_tensor(train.targets, dtype=torch.int64)
        if self.examples is not None and self.examples > len(y):
            raise DataError(f"{self.name} has {len(y)} training examples, not {self.examples}")
        return Data(
            name=self.name,
            x=self.images(train)[: self.examples],
            y=y[: self.examples],
            test_x=self.images(test),
            test_y=torch.as_tensor(test.targets, dtype=torch.int64),
            num_classes=len(train.classes),
            class_names=tuple(train.classes),
            normalise="per-channel",
        )

    def _open(self, data_dir: Path) -> tuple[Any, Any]:
        from torchvision import datasets

        source = getattr(datasets, self.source)
        try:
            return source(str(data_dir), train=True), source(str(data_dir), train=False)
        # A damaged file makes torchvision fail in many ways, bare assertions among them.
        except Exception as error:
            problem = next(self.problems(data_dir, source), None) or f"cannot be read: {one_line(error)}"
        folder = data_dir / self.folder
        if not folder.is_dir():
            raise DataError(
                f"{self.name}: there is no {folder}: point --data-dir to the directory that holds {self.folder}/, "
                "or fetch it with --dataset-download"
            )
        raise DataError(
            f"{self.name}: {problem}: point --data-dir to a sound copy, or move {folder} away and fetch it anew with "
            "--dataset-download"
        )

    def _fetch(self, data_dir: Path) -> None:
        """Download beside the goal and move it into place whole, so that an interrupted download leaves nothing."""
        from torchvision import datasets

        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=data_dir, prefix=".wsl-download-") as temporary:
                getattr(datasets, self.source)(temporary, download=True)
                goal = data_dir / self.folder
                goal.parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(temporary) / self.folder, goal)
        except Exception as error:
            if (data_dir / self.folder).is_dir():  # another process was faster
                return
            raise DataError(
                f"{self.name} could not be downloaded to {data_dir}: {one_line(error)}: "
                "point --data-dir to a directory that holds a copy"
            ) from None

    @abstractmethod
    def images(self, part: Any) -> Tensor:
        """Return torchvision's images as bytes [n, C, H, W]."""

    @abstractmethod
    def problems(self, data_dir: Path, source: Any) -> Iterator[str]:
        """Say which files are missing or broken."""


@attrs.frozen(kw_only=True)
class IdxImages(TorchvisionImages):
    """MNIST and its successors: four files in the idx format."""

    def images(self, part: Any) -> Tensor:
        images: Tensor = part.data.unsqueeze(1)
        return images

    def problems(self, data_dir: Path, source: Any) -> Iterator[str]:
        for part in ("train", "t10k"):
            for name, dimensions in ((f"{part}-images-idx3-ubyte", 3), (f"{part}-labels-idx1-ubyte", 1)):
                path = data_dir / self.folder / name
                problem = idx_problem(path, dimensions)
                if problem:
                    yield f"{path} {problem}"


def idx_problem(path: Path, dimensions: int) -> str | None:
    """Return what is wrong with a file in the idx format, or None.

    It opens with two zero bytes, 8 for "unsigned bytes", the number of dimensions, and each dimension in four bytes.
    """
    if not path.is_file():
        return "is missing"
    size, header_size = path.stat().st_size, 4 + 4 * dimensions
    with path.open("rb") as file:
        header = file.read(header_size)
    if len(header) < header_size:
        return f"has only {size} bytes (truncated?)"
    if header[:4] != bytes((0, 0, 8, dimensions)):
        return "is not an idx file of bytes with the right number of dimensions"
    shape = [int.from_bytes(header[i : i + 4], "big") for i in range(4, header_size, 4)]
    expected = header_size + math.prod(shape)
    return None if size == expected else f"has {size:,} bytes instead of {expected:,} (truncated?)"


@attrs.frozen(kw_only=True)
class CifarImages(TorchvisionImages):
    """CIFAR: pickled batches, read only if they match their published checksums."""

    def images(self, part: Any) -> Tensor:
        import torch

        return torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous()

    def problems(self, data_dir: Path, source: Any) -> Iterator[str]:
        from torchvision.datasets.utils import check_integrity

        meta = (source.meta["filename"], source.meta["md5"])
        for name, md5 in (*source.train_list, *source.test_list, meta):
            path = data_dir / self.folder / name
            if not path.is_file():
                yield f"{path} is missing"
            elif not check_integrity(str(path), md5):
                yield f"{path} does not match its published checksum (truncated or altered)"


@attrs.frozen(kw_only=True)
class Mnist(IdxImages):
    """MNIST: 60,000 + 10,000 handwritten digits of 28×28 pixels."""

    name: ClassVar[str] = "mnist"
    citation: ClassVar[str] = "LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning"
    source: ClassVar[str] = "MNIST"
    folder: ClassVar[str] = "MNIST/raw"


@attrs.frozen(kw_only=True)
class FashionMnist(IdxImages):
    """Fashion-MNIST: 60,000 + 10,000 pieces of clothing of 28×28 pixels."""

    name: ClassVar[str] = "fashion-mnist"
    citation: ClassVar[str] = "Xiao, Rasul, Vollgraf (2017), arXiv:1708.07747"
    source: ClassVar[str] = "FashionMNIST"
    folder: ClassVar[str] = "FashionMNIST/raw"


@attrs.frozen(kw_only=True)
class Kmnist(IdxImages):
    """Kuzushiji-MNIST: 60,000 + 10,000 cursive Japanese characters of 28×28 pixels."""

    name: ClassVar[str] = "kmnist"
    citation: ClassVar[str] = "Clanuwat et al. (2018), Deep Learning for Classical Japanese Literature"
    source: ClassVar[str] = "KMNIST"
    folder: ClassVar[str] = "KMNIST/raw"


@attrs.frozen(kw_only=True)
class Cifar10(CifarImages):
    """CIFAR-10: 50,000 + 10,000 colour photographs of 32×32 pixels, 10 classes."""

    name: ClassVar[str] = "cifar10"
    citation: ClassVar[str] = "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images"
    source: ClassVar[str] = "CIFAR10"
    folder: ClassVar[str] = "cifar-10-batches-py"


@attrs.frozen(kw_only=True)
class Cifar100(CifarImages):
    """CIFAR-100: 50,000 + 10,000 colour photographs of 32×32 pixels, 100 classes."""

    name: ClassVar[str] = "cifar100"
    citation: ClassVar[str] = "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images"
    source: ClassVar[str] = "CIFAR100"
    folder: ClassVar[str] = "cifar-100-python"
