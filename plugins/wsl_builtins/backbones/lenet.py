"""LeNet-5 as it is built today: ReLU, max pooling, no connection table (LeCun et al., 1998)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.backbones.shapes import image_shape
from wsl_toolkit import Backbone

if TYPE_CHECKING:
    from torch import nn


@attrs.frozen(kw_only=True)
class LeNet(Backbone):
    """A small convolutional network for 28×28 images, and for any of at least 16×16."""

    name: ClassVar[str] = "lenet"
    citation: ClassVar[str] = "LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        from torch import nn

        channels, height, width = image_shape(self.name, input_shape, smallest=16)
        # The first convolution keeps the size, each pooling halves it, the second convolution takes 4 pixels.
        cells = ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        return nn.Sequential(
            nn.Conv2d(channels, 6, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * cells, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, num_classes),
        )
