"""Any image classifier of torchvision's model registry, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_builtins.backbones.shapes import image_shape
from wsl_toolkit import Backbone, param
from wsl_toolkit.errors import ConfigError, did_you_mean, one_line

if TYPE_CHECKING:
    from torch import nn


@attrs.frozen(kw_only=True)
class Torchvision(Backbone):
    """Any classifier of torchvision by its name, untrained, with K outputs.

    Images that are not of three channels change the network's first convolution, not the images: it takes as many
    channels as there are, so no computation is spent on copies. Its weights are the first channels of the ones that
    torchvision drew (taken in turn where there are more than three), so the network starts as its authors meant.
    """

    name: ClassVar[str] = "torchvision"

    model: str = param("resnet18", help="a name such as resnet18, mobilenet_v3_small, efficientnet_b0 or vit_b_16")

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        from torchvision import models

        known = models.list_models(module=models)
        if self.model not in known:
            near = did_you_mean(self.model, known) or f" It has {', '.join(known[:5])} and {len(known) - 5} more."
            raise ConfigError(f"backbone {self.name}: torchvision has no classifier named {self.model!r}.{near}")
        channels, _, _ = image_shape(self.name, input_shape, smallest=1)
        network: nn.Module = models.get_model(self.model, weights=None, num_classes=num_classes, **_extras(self.model))
        if channels != 3:
            adapt_first_convolution(network, channels)
        self._try_out(network, input_shape, num_classes)
        return network

    def _try_out(self, network: nn.Module, input_shape: tuple[int, ...], num_classes: int) -> None:
        """Refuse images that the network cannot take before training starts, with its own reason."""
        import torch

        network.eval()
        try:
            with torch.no_grad():
                shape = tuple(network(torch.zeros(1, *input_shape)).shape)
        except (RuntimeError, ValueError, AssertionError) as error:
            raise ConfigError(
                f"backbone {self.name}: {self.model} cannot take images of {input_shape[1]}×{input_shape[2]} pixels "
                f"({one_line(error)}): choose larger images (image-folder has --dataset-size), or a network for small "
                "ones, such as resnet32 or lenet"
            ) from None
        network.train()
        if shape != (1, num_classes):
            raise ConfigError(
                f"backbone {self.name}: {self.model} gives outputs of shape {shape}, not {num_classes} logits"
            )


def _extras(model: str) -> dict[str, Any]:
    """Return what two models need to be plain classifiers: no second output in training, no slow initialisation."""
    return {"aux_logits": False, "init_weights": True} if model in ("googlenet", "inception_v3") else {}


def adapt_first_convolution(network: nn.Module, channels: int) -> None:
    """Make the first convolution take `channels` channels, starting from the weights it has."""
    import torch
    from torch import nn

    name, old = next((name, module) for name, module in network.named_modules() if isinstance(module, nn.Conv2d))
    new = nn.utils.skip_init(
        nn.Conv2d,
        channels,
        old.out_channels,
        kernel_size=old.kernel_size,
        stride=old.stride,
        padding=old.padding,
        bias=old.bias is not None,
    )
    with torch.no_grad():
        new.weight.copy_(old.weight[:, torch.arange(channels) % old.in_channels])
        if old.bias is not None and new.bias is not None:
            new.bias.copy_(old.bias)
    parent, _, attribute = name.rpartition(".")
    setattr(network.get_submodule(parent), attribute, new)
