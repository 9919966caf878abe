"""Residual networks for small images: the CIFAR networks of He, Zhang, Ren and Sun (2016), Section 4.2.

A 3×3 convolution, then three stages of n basic blocks with 16, 32 and 64 channels (the image is halved between
stages), global average pooling and one linear layer: 6n + 2 layers in all, 32 for n = 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.backbones.shapes import INITIALISATION_HELP, INITIALISATIONS, image_shape
from wsl_toolkit import Backbone, param

if TYPE_CHECKING:
    from torch import nn

WIDTHS = (16, 32, 64)


@attrs.frozen(kw_only=True)
class ResNet32(Backbone):
    """The 32-layer CIFAR ResNet: 464,154 parameters for 10 classes of colour images."""

    name: ClassVar[str] = "resnet32"
    citation: ClassVar[str] = "He, Zhang, Ren, Sun (2016), Deep Residual Learning for Image Recognition"

    shortcut: str = param(
        "a",
        help="where a stage widens: a pads with zeros, as He et al. did on CIFAR; b projects by a 1×1 convolution",
        choices=("a", "b"),
    )

    initialisation: str = param("fan-in", help=INITIALISATION_HELP, choices=INITIALISATIONS)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        channels, _, _ = image_shape(self.name, input_shape, smallest=4)
        return cifar_resnet(channels, num_classes, blocks=5, shortcut=self.shortcut, initialisation=self.initialisation)


def cifar_resnet(
    channels: int, num_classes: int, *, blocks: int, shortcut: str, initialisation: str = "fan-in"
) -> nn.Module:
    """Build a network of 6 * blocks + 2 layers."""
    from torch import nn

    from wsl_builtins.backbones.blocks import BasicBlock, with_normal_convolutions

    layers: list[nn.Module] = [
        nn.Conv2d(channels, WIDTHS[0], kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(WIDTHS[0]),
        nn.ReLU(),
    ]
    width = WIDTHS[0]
    for stage, wider in enumerate(WIDTHS):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(BasicBlock(width, wider, stride, shortcut))
            width = wider
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))
    return with_normal_convolutions(network, initialisation)
