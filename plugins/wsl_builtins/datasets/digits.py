"""The 1,797 handwritten digits that come with scikit-learn: nothing to download."""

from __future__ import annotations

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
        import torch
        from sklearn.datasets import load_digits

        from wsl_toolkit import Data

        bunch = load_digits()
        return Data(
            name=self.name,
            x=torch.from_numpy(bunch.images).float().unsqueeze(1) / 16,
            y=torch.from_numpy(bunch.target),
            num_classes=10,
            class_names=tuple(str(digit) for digit in range(10)),
            normalise="per-channel",
        )
