"""Fully connected networks: the paper's linear model and its five-layer perceptron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Backbone, param

if TYPE_CHECKING:
    from torch import nn


@attrs.frozen(kw_only=True)
class Linear(Backbone):
    """A linear classifier, d-K."""

    name: ClassVar[str] = "linear"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))


@attrs.frozen(kw_only=True)
class Mlp(Backbone):
    """A perceptron with batch norm and ReLU on each hidden layer, d-300-300-300-300-K by default."""

    name: ClassVar[str] = "mlp"
    citation: ClassVar[str] = "Wu, Lv, Sugiyama (2023), Section 4"

    widths: tuple[int, ...] = param(
        (300, 300, 300, 300),
        help="units of each hidden layer; 300,301,302,303 is what two public codes train",
        ge=1,
    )

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for units in self.widths:
            # The batch norm that follows has a shift of its own, so the layer needs no bias.
            layers += [nn.Linear(width, units, bias=False), nn.BatchNorm1d(units), nn.ReLU()]
            width = units
        return nn.Sequential(*layers, nn.Linear(width, num_classes))
