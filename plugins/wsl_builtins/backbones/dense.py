"""Fully connected networks: the paper's linear model and its five-layer perceptron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Backbone, param

if TYPE_CHECKING:
    from torch import nn

INITIALISATIONS = ("torch", "xavier")
_initialisation_help = "how weights start: torch's default, or Xavier uniform as in the public codes"


@attrs.frozen(kw_only=True)
class Linear(Backbone):
    """A linear classifier, d-K."""

    name: ClassVar[str] = "linear"

    initialisation: str = param("torch", help=_initialisation_help, choices=INITIALISATIONS)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        from torch import nn

        layer = nn.Linear(math.prod(input_shape), num_classes)
        return initialised(nn.Sequential(nn.Flatten(), layer), self.initialisation)


@attrs.frozen(kw_only=True)
class Mlp(Backbone):
    """A perceptron with batch norm and ReLU on each hidden layer, d-300-300-300-300-K by default.

    Where batch norm follows a hidden layer at once, that layer has no bias, because the norm subtracts it and has a
    shift of its own; public codes of the field leave it out too.
    """

    name: ClassVar[str] = "mlp"
    citation: ClassVar[str] = "Wu, Lv, Sugiyama (2023), Section 4"

    widths: tuple[int, ...] = param(
        (300, 300, 300, 300),
        help="units of each hidden layer; 300,301,302,303 is what two public codes train",
        ge=1,
    )
    norm: str = param(
        "before", help="batch norm before the ReLU, or after it, with a bias in the layer", choices=("before", "after")
    )
    initialisation: str = param("torch", help=_initialisation_help, choices=INITIALISATIONS)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(input_shape)
        for units in self.widths:
            if self.norm == "before":
                layers += [nn.Linear(width, units, bias=False), nn.BatchNorm1d(units), nn.ReLU()]
            else:
                layers += [nn.Linear(width, units), nn.ReLU(), nn.BatchNorm1d(units)]
            width = units
        return initialised(nn.Sequential(*layers, nn.Linear(width, num_classes)), self.initialisation)


def initialised(network: nn.Module, how: str) -> nn.Module:
    """Return the network with its linear weights drawn as `how` says; torch has drawn its own already."""
    from torch import nn

    if how == "xavier":
        for module in network.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
    return network
