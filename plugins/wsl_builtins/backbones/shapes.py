"""What the convolutional networks have in common: what they ask of their inputs, and how their weights begin."""

from __future__ import annotations

from wsl_toolkit.errors import ConfigError

INITIALISATIONS = ("fan-in", "fan-out")
INITIALISATION_HELP = (
    "weights of convolutions are normal with variance 2/fan: fan-in, or fan-out as much public code has"
)


def image_shape(backbone: str, input_shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """Return (channels, height, width), or say why these inputs do not fit the network and what would."""
    if len(input_shape) != 3:
        what = f"{input_shape[0]} features" if len(input_shape) == 1 else f"inputs of shape {input_shape}"
        raise ConfigError(
            f"backbone {backbone} takes images [channels, height, width], but this dataset has {what}: "
            "use --backbone mlp or --backbone linear"
        )
    channels, height, width = input_shape
    if min(height, width) < smallest:
        raise ConfigError(
            f"backbone {backbone} needs images of at least {smallest}×{smallest} pixels, not {height}×{width}: "
            "use --backbone mlp or --backbone linear, or a dataset of larger images"
        )
    return channels, height, width
