"""The building blocks of the convolutional networks; imported only when one is built, because they need torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = (
                PadShortcut(outputs - inputs, stride) if shortcut == "a" else projection(inputs, outputs, stride)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(body(x) + shortcut(x))."""
        return functional.relu(self.body(x) + self.shortcut(x))


class PadShortcut(nn.Module):
    """Option A: every `stride`-th pixel, and zeros for the new channels; no parameters."""

    def __init__(self, missing: int, stride: int) -> None:
        super().__init__()
        self.before = missing // 2
        self.after = missing - self.before
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Return the smaller, wider image."""
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Option B: a 1×1 convolution with batch norm."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


class BottleneckLayer(nn.Module):
    """A DenseNet-B layer: 1×1 to four times the growth, then 3×3; its output joins its input (Huang et al., 2017)."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, 4 * growth, kernel_size=1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, kernel_size=3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return x with `growth` new channels."""
        return torch.cat([x, self.body(x)], dim=1)


def transition(inputs: int, outputs: int) -> nn.Module:
    """Compress the channels and halve the image between dense blocks."""
    return nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, kernel_size=1, bias=False), nn.AvgPool2d(2)
    )


def with_normal_convolutions(network: nn.Module, initialisation: str) -> nn.Module:
    """Draw the weights of every convolution from N(0, 2/fan), the fan being that of its inputs or of its outputs."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in" if initialisation == "fan-in" else "fan_out")
    return network
