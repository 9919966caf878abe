"""PyTorch Image Models (Wightman, 2019) by name, each with the input size and normalisation of its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import attrs

from wsl_toolkit import Backbone, param
from wsl_toolkit.errors import ConfigError, did_you_mean, one_line

if TYPE_CHECKING:
    from torch import nn

FILES = ("model.safetensors", "pytorch_model.bin")
"""What timm's weights are called in the Hugging Face cache."""


@attrs.frozen(kw_only=True)
class Timm(Backbone):
    """Any image classifier of timm by its name, untrained or pretrained, with K outputs.

    Images are resized and normalised as the model's own configuration says; grey ones are repeated three times, if the
    model is one for colour. Nothing is downloaded.
    """

    name: ClassVar[str] = "timm"
    citation: ClassVar[str] = "Wightman (2019), PyTorch Image Models"

    model: str = param("resnet18", help="timm's name of the model, with a tag for certain weights: resnet18.a1_in1k")
    pretrained: bool = param(False, help="start from timm's weights, which must be in the Hugging Face cache")
    weights: str | None = param(None, help="start from this file of weights instead")
    drop_rate: float = param(0.0, help="dropout in front of the head", ge=0, lt=1)
    size: int | None = param(None, help="images are resized to so many pixels a side; default: the model's own", ge=1)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        from torch import nn

        from wsl_toolkit.networks import Pixels

        if len(input_shape) != 3:
            raise ConfigError(f"backbone {self.name} takes images [channels, height, width], not {input_shape}")
        wanted = self._wanted()
        channels = input_shape[0]
        if channels not in (1, len(wanted["mean"])) and not self._is_started():
            wanted |= {"mean": (), "std": ()}  # nobody has measured such images
        prepare = Pixels(channels, **wanted)
        network = nn.Sequential(prepare, self._create(num_classes, prepare.channels, wanted["size"]))
        self._try_out(network, input_shape, num_classes)
        return network

    def check_start(self) -> None:
        self.start_file()

    def start_file(self) -> Path | None:
        return self._file() if self._is_started() else None

    def start(self, network: nn.Module) -> str:
        import torch

        from wsl_toolkit.networks import Pixels, file_digest, read_weights

        if not self._is_started():
            return ""
        path = self._file()
        own, prepare = network.get_submodule("1"), network.get_submodule("0")
        assert isinstance(prepare, Pixels)
        num_classes, read = int(cast(Any, own).num_classes), read_weights(path)
        heads = _heads(own)
        theirs = len(read.get(f"{heads[0]}.weight", ()))
        # timm knows how to bring the names and shapes of old files up to date, when it creates a network from them.
        given = {"state_dict": read, "num_classes": theirs or num_classes, "custom_load": False}
        with torch.random.fork_rng(devices=[]):
            try:
                filled = self._create(num_classes, prepare.channels, prepare.size, pretrained=given)
            except Exception as error:  # names or shapes of another network, each model in its own words
                raise ConfigError(
                    f"backbone {self.name}: the weights {path} do not fit {self.model}: {one_line(error)[:300]}"
                ) from None
        is_new = theirs != num_classes
        state = filled.state_dict()
        kept = {k: v for k, v in state.items() if not (is_new and k.rpartition(".")[0] in heads)}
        own.load_state_dict(kept, strict=False)
        replaced = f"; its head of {theirs} classes is replaced by a new one of {num_classes}" if is_new else ""
        return f"{self.model} starts from the weights {path} (SHA-256 {file_digest(path)[:12]}){replaced}"

    def _is_started(self) -> bool:
        return self.pretrained or self.weights is not None

    def _configuration(self) -> dict[str, Any]:
        """Return timm's configuration of the model's weights."""
        timm = import_timm()
        architecture, _, tag = self.model.partition(".")
        if not timm.is_model(architecture):
            near = did_you_mean(architecture, timm.list_models())
            raise ConfigError(f"backbone {self.name}: timm {timm.__version__} has no model {architecture!r}.{near}")
        if tag and self.model not in (known := timm.list_pretrained(f"{architecture}.*")):
            raise ConfigError(
                f"backbone {self.name}: there are no weights {self.model!r}.{did_you_mean(self.model, known)}"
            )
        found: dict[str, Any] = timm.get_pretrained_cfg(self.model).to_dict()
        return found

    def _wanted(self) -> dict[str, Any]:
        """Return mean, deviation, size and interpolation of the images that the model wants."""
        timm_data = import_timm().data
        found = timm_data.resolve_data_config({}, pretrained_cfg=self._configuration())
        return {
            "mean": tuple(found["mean"]),
            "std": tuple(found["std"]),
            "size": self.size or found["input_size"][-1],
            "interpolation": "bicubic" if found["interpolation"] == "bicubic" else "bilinear",
        }

    def _create(
        self, num_classes: int, channels: int, size: int | None, pretrained: dict[str, Any] | None = None
    ) -> nn.Module:
        """Create timm's network, told of the size of images only where it must know; weights if any are given."""
        configuration = self._configuration()
        told = {"img_size": size} if configuration.get("fixed_input_size") else {}
        network: nn.Module = import_timm().create_model(
            self.model,
            pretrained=pretrained is not None,
            pretrained_cfg_overlay=pretrained,
            num_classes=num_classes,
            in_chans=channels,
            drop_rate=self.drop_rate,
            **told,
        )
        return network

    def _file(self) -> Path:
        """Return the file of the weights, or say where it would have to be."""
        if self.weights is not None:
            if not Path(self.weights).is_file():
                raise ConfigError(f"backbone {self.name}: there is no file of weights at {self.weights}")
            return Path(self.weights)
        import_timm()
        from huggingface_hub import constants, try_to_load_from_cache

        repository = self._configuration().get("hf_hub_id")
        if not repository:
            raise ConfigError(
                f"backbone {self.name}: timm has no weights for {self.model}: give a file as --backbone-weights"
            )
        for name in FILES:
            found = try_to_load_from_cache(repository, name)
            if isinstance(found, str):
                return Path(found)
        raise ConfigError(
            f"backbone {self.name}: the weights {repository} are not in the Hugging Face cache "
            f"{constants.HF_HUB_CACHE}, and nothing is downloaded: fetch them by `hf download {repository} {FILES[0]}` "
            "where there is a network (HF_HOME moves that cache), or give a file as --backbone-weights"
        )

    def _try_out(self, network: nn.Module, input_shape: tuple[int, ...], num_classes: int) -> None:
        """Refuse images that the network cannot take before training starts, with its own reason."""
        import torch

        network.eval()
        try:
            with torch.no_grad():
                shape = tuple(network(torch.zeros(1, *input_shape)).shape)
        except (RuntimeError, ValueError, AssertionError) as error:
            raise ConfigError(
                f"backbone {self.name}: {self.model} cannot take images of {self.size} pixels "
                f"({one_line(error)[:200]}): choose another --backbone-size, or leave it out"
            ) from None
        network.train()
        if shape != (1, num_classes):
            raise ConfigError(
                f"backbone {self.name}: {self.model} gives outputs of shape {shape}, not {num_classes} logits"
            )


def _heads(network: Any) -> tuple[str, ...]:
    """Return the names of a network's last layers: one, or two where it was distilled."""
    named = network.pretrained_cfg.get("classifier")
    return tuple(named) if isinstance(named, list | tuple) else (str(named),)


def import_timm() -> Any:
    """Return timm, or say how to get it."""
    try:
        import timm
        import timm.data
    except ImportError as error:
        raise ConfigError(
            f"backbone timm needs {error.name}, which is not installed: pip install 'wsl-toolkit[timm]'"
        ) from None
    return timm
