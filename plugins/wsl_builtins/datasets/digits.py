"""The 1,797 handwritten digits that come with scikit-learn: nothing to download."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Dataset

if TYPE_CHECKING:
    from wsl_toolkit import Data


@attrs.frozen(kw_only=True)
class Digits(Dataset):
    """1,797 handwritten digits of 8×8 pixels, bundled with scikit-learn."""

    name: ClassVar[str] = "digits"
    citation: ClassVar[str] = "Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI"

    def load(self, data_dir: Path) -> Data:
        import numpy as np
        import torch

        from wsl_toolkit import Data

        table = torch.from_numpy(np.loadtxt(_bundled_file(), delimiter=",", dtype=np.uint8))
        return Data(
            name=self.name,
            x=table[:, :-1].float().view(-1, 1, 8, 8) / 16,
            y=table[:, -1].long(),
            num_classes=10,
            class_names=tuple(str(digit) for digit in range(10)),
            normalise="per-channel",
        )


def _bundled_file() -> Path:
    """Return scikit-learn's file, 64 pixels and a digit a row, without importing scikit-learn, which is slow."""
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
