"""Any image classifier of torchvision's model registry, by name, untrained or from weights that are on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_builtins.backbones.shapes import image_shape
from wsl_toolkit import Backbone, param
from wsl_toolkit.errors import ConfigError, did_you_mean, one_line

if TYPE_CHECKING:
    from torch import nn


@attrs.frozen(kw_only=True)
class Torchvision(Backbone):
    """Any classifier of torchvision by its name, untrained or from given weights, with K outputs.

    Images that are not of three channels change the network's first convolution, not the images: it takes as many
    channels as there are, so no computation is spent on copies. Its weights are the first channels of the ones that
    torchvision drew (taken in turn where there are more than three), so the network starts as its authors meant.

    With `weights` the network sees what it was trained on: grey images are repeated three times, and images are resized
    and normalised as the transforms of those weights say. Nothing is downloaded.
    """

    name: ClassVar[str] = "torchvision"

    model: str = param("resnet18", help="a name such as resnet18, mobilenet_v3_small, efficientnet_b0 or vit_b_16")
    weights: str | None = param(
        None,
        help="what the network starts from: a file, or torchvision's name of weights (DEFAULT, IMAGENET1K_V1) that are "
        "in torch's cache",
    )
    size: int | None = param(
        None, help="images are resized to so many pixels a side; weights bring a size of their own", ge=1
    )

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        from torch import nn
        from torchvision import models

        from wsl_toolkit.networks import Pixels

        self._check_model()
        channels, _, _ = image_shape(self.name, input_shape, smallest=1)
        prepared = self._preparation() if self.weights is not None else {"size": self.size}
        extras = _extras(self.model, prepared["size"], pretrained=self.weights is not None)
        network: nn.Module = models.get_model(self.model, weights=None, num_classes=num_classes, **extras)
        if channels != 3 and self.weights is None:
            adapt_first_convolution(network, channels)
        if prepared["size"] is not None:
            network = nn.Sequential(Pixels(channels, **prepared), network)
        self._try_out(network, input_shape, num_classes)
        return network

    def check_start(self) -> None:
        self.start_file()

    def start_file(self) -> Path | None:
        if self.weights is None:
            return None
        self._check_model()
        return self._file()

    def start(self, network: nn.Module) -> str:
        from wsl_toolkit.networks import file_digest, fill, read_weights

        if self.weights is None:
            return ""
        path = self._file()
        digest = file_digest(path)
        promised = re.search(r"-([0-9a-f]{8,})\.pth$", path.name)
        if promised and path != Path(self.weights) and not digest.startswith(promised[1]):
            raise ConfigError(
                f"backbone {self.name}: {path} is damaged: its SHA-256 begins with {digest[:8]}; get it again"
            )
        read = read_weights(path)
        found = {_new_name(name): value for name, value in read.items() if not name.lower().startswith("aux")}
        replaced = fill(network.get_submodule("1"), found, f"backbone {self.name}: the file of weights {path}")
        return f"{self.model} starts from the weights {path} (SHA-256 {digest[:12]}){replaced}"

    def _check_model(self) -> None:
        from torchvision import models

        known = models.list_models(module=models)
        if self.model not in known:
            near = did_you_mean(self.model, known) or f" It has {', '.join(known[:5])} and {len(known) - 5} more."
            raise ConfigError(f"backbone {self.name}: torchvision has no classifier named {self.model!r}.{near}")

    def _preparation(self) -> dict[str, Any]:
        """Return what the transforms of the weights do; those of a file are taken for the network's default ones."""
        from torchvision import models

        transforms = (self._named() or models.get_model_weights(self.model).DEFAULT).transforms()
        return {
            "mean": tuple(transforms.mean),
            "std": tuple(transforms.std),
            "size": self.size or transforms.crop_size[0],
            "interpolation": transforms.interpolation.value,
        }

    def _named(self) -> Any:
        """Return torchvision's weights of that name, None if there are none."""
        from torchvision import models

        return dict(models.get_model_weights(self.model).__members__).get((self.weights or "").rpartition(".")[2])

    def _file(self) -> Path:
        """Return the file of the weights, or say where it would have to be."""
        import torch

        path, named = Path(self.weights or ""), self._named()
        if path.is_file():
            return path
        if named is None:
            from torchvision import models

            known = list(models.get_model_weights(self.model).__members__)
            raise ConfigError(
                f"backbone {self.name}: {self.weights!r} is neither a file nor the name of weights of {self.model}: it "
                f"has {', '.join(known)}"
            )
        cached: Path = Path(torch.hub.get_dir()) / "checkpoints" / named.url.rpartition("/")[2]
        if not cached.is_file():
            raise ConfigError(
                f"backbone {self.name}: the weights {named} are not on this machine, and nothing is downloaded: put "
                f"{named.url} at {cached} (TORCH_HOME moves that cache), or give the file as --backbone-weights"
            )
        return cached

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


def _extras(model: str, size: int | None, *, pretrained: bool) -> dict[str, Any]:
    """Return what some models must be told: the images' size, or to be plain classifiers with one output.

    The published weights of the latter want images in another scale than others', which the networks see to.
    """
    if model in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True, "transform_input": pretrained}
    return {"image_size": size} if model.startswith("vit_") and size is not None else {}


def _new_name(name: str) -> str:
    """Return the present name of a weight: published DenseNets still say norm.1 for norm1."""
    return re.sub(r"(denselayer\d+\.(?:norm|conv))\.(\d)\.", r"\1\2.", name)


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
