"""A network that sees its training images moved (and colour images mirrored) a little, each time otherwise.

The views are those of `wsl_toolkit.augmentation`; in evaluation the network sees its inputs as they are, and what is
kept of it after training is the network alone.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from torch import Tensor, nn

from wsl_toolkit import augmentation
from wsl_toolkit.components import NEEDS, Backbone, Estimator


class AugmentedNetwork(nn.Module):
    """A network that looks at weak views of its inputs while it is trained."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of the inputs, or of views of them."""
        logits: Tensor = self.network(augmentation.weak(inputs) if self.training else inputs)
        return logits


@attrs.frozen(kw_only=True)
class AugmentedBackbone(Backbone):
    """A backbone whose network looks at weak views while it is trained."""

    name: ClassVar[str] = "augmented"

    backbone: Backbone

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Build the network, and put the views before it."""
        return AugmentedNetwork(self.backbone.build(input_shape, num_classes))


def augmented(backbone: Backbone, estimator: Estimator) -> Backbone:
    """Return the backbone with views before it, unless the estimator brings views of its own."""
    views = any(NEEDS[need].provider == "network" for need in estimator.needs if need in NEEDS)
    return backbone if views else AugmentedBackbone(backbone=backbone)


def without_views(network: nn.Module) -> nn.Module:
    """Return the network as it is used after training."""
    return network.network if isinstance(network, AugmentedNetwork) else network
