"""DenseNet-BC for small images (Huang, Liu, van der Maaten and Weinberger, 2017), Sections 3 and 4.2.

A 3×3 convolution to twice the growth, three dense blocks of n bottleneck layers, between them transitions that
halve image and channels, global average pooling and one linear layer: 6n + 4 layers in all, 22 for n = 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.backbones.shapes import INITIALISATION_HELP, INITIALISATIONS, image_shape
from wsl_toolkit import Backbone, param

if TYPE_CHECKING:
    from torch import nn


@attrs.frozen(kw_only=True)
class DenseNet22(Backbone):
    """The 22-layer DenseNet-BC, growth 12, compression 0.5: 71,686 parameters for 10 classes of colour images."""

    name: ClassVar[str] = "densenet22"
    citation: ClassVar[str] = "Huang, Liu, van der Maaten, Weinberger (2017), Densely Connected Convolutional Networks"

    initialisation: str = param("fan-in", help=INITIALISATION_HELP, choices=INITIALISATIONS)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        channels, _, _ = image_shape(self.name, input_shape, smallest=4)
        return densenet_bc(channels, num_classes, layers=3, growth=12, initialisation=self.initialisation)


def densenet_bc(
    channels: int, num_classes: int, *, layers: int, growth: int, initialisation: str = "fan-in"
) -> nn.Module:
    """Build a network of 6 * layers + 4 layers with compression 0.5."""
    from torch import nn

    from wsl_builtins.backbones.blocks import BottleneckLayer, transition, with_normal_convolutions

    width = 2 * growth
    stack: list[nn.Module] = [nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=False)]
    for block in range(3):
        for _ in range(layers):
            stack.append(BottleneckLayer(width, growth))
            width += growth
        if block < 2:
            stack.append(transition(width, width // 2))
            width //= 2
    stack += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes)]
    network = nn.Sequential(*stack)
    return with_normal_convolutions(network, initialisation)
