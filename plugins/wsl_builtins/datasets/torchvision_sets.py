"""Image benchmarks through torchvision: a local copy below the data directory, or a checksummed download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Dataset, param
from wsl_toolkit.errors import DataError

if TYPE_CHECKING:
    from wsl_toolkit import Data


@attrs.frozen(kw_only=True)
class Mnist(Dataset):
    """MNIST: 60,000 + 10,000 handwritten digits of 28×28 pixels."""

    name: ClassVar[str] = "mnist"
    citation: ClassVar[str] = "LeCun, Bottou, Bengio, Haffner (1998)"

    download: bool = param(False, help="fetch the files if they are not below the data directory")

    def load(self, data_dir: Path) -> Data:
        import torch
        from torchvision.datasets import MNIST

        from wsl_toolkit import Data

        try:
            train, test = (MNIST(str(data_dir), train=part, download=self.download) for part in (True, False))
        except (RuntimeError, OSError, ValueError) as error:
            raise DataError(
                f"{self.name} is not below {data_dir}: {error} (give --data-dir, or --dataset-download to fetch it)"
            ) from None
        return Data(
            name=self.name,
            x=train.data.unsqueeze(1),
            y=train.targets.to(torch.int64),
            test_x=test.data.unsqueeze(1),
            test_y=test.targets.to(torch.int64),
            num_classes=10,
            class_names=tuple(train.classes),
            normalise="per-channel",
        )
