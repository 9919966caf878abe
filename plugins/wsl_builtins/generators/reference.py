"""Reference models for instance-dependent processes: who confuses this example with what?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from wsl_builtins.generators.matrices import read_matrix
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BATCH = 256
ROWS = 8192
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 1.0, 0.9, 1e-4


@attrs.frozen(eq=False)
class LinearReference:
    """A linear softmax model on standardised inputs."""

    shift: Tensor
    scale: Tensor
    weight: Tensor
    """[d, K]"""
    bias: Tensor

    def logits(self, x: Tensor) -> Tensor:
        """Return logits [n, K] in float64."""
        import torch

        shift, scale = self.shift.to(x.device), self.scale.to(x.device)
        weight, bias = self.weight.to(x.device).double(), self.bias.to(x.device).double()
        # In float32 the rounding of a product depends on a row's place in the batch; a law must not depend on it.
        parts = (((_flat(part) - shift) * scale).double() @ weight for part in x.split(ROWS))
        return torch.cat(list(parts)) + bias


def train_linear(x: Tensor, y: Tensor, num_classes: int, epochs: int, rng: torch.Generator) -> LinearReference:
    """Train a linear softmax model by momentum SGD, from zero weights, shuffled by `rng` alone.

    Inputs are standardised and divided by √d, so that the loss is 1/2-smooth whatever the data, and one step size fits.
    """
    import torch

    n, width = len(x), x[0].numel()
    shift, scale = _standardise(x)
    weight = torch.zeros(width, num_classes, device=x.device)
    bias = torch.zeros(num_classes, device=x.device)
    momentum = [torch.zeros_like(weight), torch.zeros_like(bias)]
    y = y.to(x.device)
    for _ in range(epochs):
        order = torch.randperm(n, generator=rng, device=rng.device).to(x.device)
        for index in order.split(BATCH):
            features = (_flat(x[index]) - shift) * scale
            # The gradient of cross-entropy at the logits is softmax - one-hot.
            error = torch.softmax(features @ weight + bias, dim=1)
            error[torch.arange(len(index), device=x.device), y[index]] -= 1
            gradients = (features.T @ error / len(index) + WEIGHT_DECAY * weight, error.mean(0))
            for value, velocity, gradient in zip((weight, bias), momentum, gradients, strict=True):
                velocity.mul_(MOMENTUM).add_(gradient)
                value.sub_(velocity, alpha=LEARNING_RATE)
    return LinearReference(shift, scale, weight, bias)


@attrs.frozen(eq=False)
class TableReference:
    """A table of predictions, one row for each example of the data; rows are found again by the example's content."""

    keys: Tensor
    """Sorted fingerprints of the examples, int64 [n]."""
    rows: Tensor
    """Logits in the order of the keys, float64 [n, K]."""

    @classmethod
    def of(cls, x: Tensor, logits: Tensor) -> TableReference:
        """Bind predictions to the examples that they were made for."""
        keys, order = fingerprints(x).sort()
        return cls(keys, logits.to(x.device)[order])

    def logits(self, x: Tensor) -> Tensor:
        """Return logits [n, K] of examples that the table knows."""
        import torch

        wanted = fingerprints(x)
        position = torch.searchsorted(self.keys.to(x.device), wanted).clamp_(max=len(self.keys) - 1)
        unknown = (self.keys.to(x.device)[position] != wanted).nonzero().flatten()
        if len(unknown):
            raise ConfigError(
                f"flip-instance: example {int(unknown[0])} is not among those the reference was given for"
            )
        return self.rows.to(x.device)[position]


def read_table(path: Path, n: int, num_classes: int) -> Tensor:
    """Read a reference model's predictions [n, K] as logits; rows that are probabilities become their logarithms."""
    import torch

    table = read_matrix(path, "flip-instance: reference")
    if table.shape != (n, num_classes):
        raise ConfigError(
            f"flip-instance: reference {path} is {table.shape[0]}×{table.shape[1]}, but {n} examples of {num_classes} "
            f"classes are to be labelled; give one row for each of them, in their order"
        )
    are_probabilities = bool((table >= 0).all()) and bool(((table.sum(1) - 1).abs() < 1e-3).all())
    return table.clamp(min=torch.finfo(torch.float64).tiny).log() if are_probabilities else table


def fingerprints(x: Tensor) -> Tensor:
    """Return a 64-bit number for each example: equal for equal inputs, and for different ones only by rare chance."""
    import torch

    values = x.reshape(len(x), -1).contiguous()
    words = values.view(torch.uint8).reshape(len(x), -1).long()
    multipliers = torch.randint(
        -(2**62), 2**62, (words.shape[1],), generator=torch.Generator().manual_seed(words.shape[1])
    )
    return (words * (2 * multipliers + 1).to(x.device)).sum(1)


def _flat(x: Tensor) -> Tensor:
    return x.reshape(len(x), -1).float()


def _standardise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and 1/(deviation √d) of every input; constant inputs weigh nothing."""
    import torch

    total = torch.zeros(x[0].numel(), dtype=torch.float64, device=x.device)
    squares = torch.zeros_like(total)
    for part in x.split(2**14):
        values = _flat(part).double()
        total += values.sum(0)
        squares += values.square().sum(0)
    mean = total / len(x)
    deviation = (squares / len(x) - mean.square()).clamp(min=0).sqrt()
    useful = deviation > 1e-6 * (1 + mean.abs())
    scale = torch.where(useful, 1 / deviation.clamp(min=1e-30), 0) / len(mean) ** 0.5
    return mean.float(), scale.float()
