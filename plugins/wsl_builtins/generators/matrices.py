"""K×K matrices of class-dependent processes: named presets, and files of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

Preset = Callable[[int, float], "Tensor"]


def steps(num_classes: int) -> Tensor:
    """Return (j - y) mod K for every pair of classes, float64 [K, K]: how far j comes after y around the circle."""
    import torch

    classes = torch.arange(num_classes)
    return ((classes - classes.unsqueeze(1)) % num_classes).double()


def pair(num_classes: int, rate: float) -> Tensor:
    """The next class joins with the rate, no other does."""
    return rate * (steps(num_classes) == 1).double()


def neighbours(num_classes: int, rate: float) -> Tensor:
    """The next and the previous class join with the rate each."""
    distance = steps(num_classes)
    return rate * ((distance == 1) | (distance == num_classes - 1)).double()


def decay(num_classes: int, rate: float) -> Tensor:
    """The d-th class after y joins with rate^d."""
    distance = steps(num_classes)
    return (rate**distance).fill_diagonal_(0)


def uniform_joining(num_classes: int, rate: float) -> Tensor:
    """Every wrong class joins with the rate: the same as `flip`."""
    return rate * (steps(num_classes) > 0).double()


def skewed_complement(num_classes: int, rate: float) -> Tensor:
    """The d-th class after y is the complementary label with a probability proportional to rate^d."""
    import math

    import torch

    return torch.softmax((steps(num_classes) * math.log(rate)).fill_diagonal_(-torch.inf), dim=1)


def neighbouring_complement(num_classes: int, rate: float) -> Tensor:
    """The next and the previous class are the complementary label with probability 1/2 each."""
    return _rows_to_one(neighbours(num_classes, 1.0))


def uniform_complement(num_classes: int, rate: float) -> Tensor:
    """Every wrong class is the complementary label with the same probability: the same as `cl`."""
    return _rows_to_one(uniform_joining(num_classes, 1.0))


JOINING: Mapping[str, Preset] = {"pair": pair, "neighbours": neighbours, "decay": decay, "uniform": uniform_joining}
COMPLEMENT: Mapping[str, Preset] = {
    "skewed": skewed_complement,
    "neighbours": neighbouring_complement,
    "uniform": uniform_complement,
}


def _rows_to_one(weights: Tensor) -> Tensor:
    return weights / weights.sum(1, keepdim=True)


def read_into(component: Any, presets: Mapping[str, Preset]) -> None:
    """Fill a component's `table` from the file that its `matrix` names, if it is not the name of a preset."""
    if component.matrix in presets:
        return
    path = Path(component.matrix)
    if not path.suffix:
        raise ConfigError(
            f"{component.name}: matrix {component.matrix!r} is neither a preset nor a .csv or .npy file."
            f"{did_you_mean(component.matrix, presets)} Presets: {', '.join(presets)}."
        )
    object.__setattr__(component, "table", read_matrix(path, f"{component.name}: matrix"))


def read_matrix(path: Path, what: str) -> Tensor:
    """Read a matrix of numbers, float64, from .npy (never pickled) or text with commas or spaces between columns."""
    import numpy as np
    import torch

    if path.suffix.lower() not in (".npy", ".csv", ".txt"):
        raise ConfigError(f"{what}: {path} must be a .npy, .csv or .txt file")
    try:
        if path.suffix.lower() == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            lines = path.read_text(encoding="utf-8").replace(",", " ").splitlines()
            values = np.loadtxt(lines, dtype=np.float64, ndmin=2)
        table = torch.from_numpy(np.array(values, dtype=np.float64))
    except FileNotFoundError:
        raise ConfigError(f"{what}: there is no file {path}") from None
    # A damaged .npy header is met with syntax, token, key and memory errors alike.
    except Exception as error:
        raise ConfigError(f"{what}: {path} does not hold a matrix of numbers ({error})") from None
    if table.ndim != 2 or table.numel() == 0:
        raise ConfigError(f"{what}: {path} holds an array of shape {tuple(table.shape)}, not a matrix")
    wrong = (~torch.isfinite(table)).nonzero()
    if len(wrong):
        row, column = (int(i) for i in wrong[0])
        raise ConfigError(f"{what}: {path} has no finite number at row {row}, column {column}")
    return table


def check_probabilities(table: Tensor, num_classes: int, what: str) -> None:
    """Refuse a matrix that is not K×K or has entries outside 0..1."""
    if table.shape != (num_classes, num_classes):
        raise ConfigError(
            f"{what} is {table.shape[0]}×{table.shape[1]}, but {num_classes} classes need {num_classes}×{num_classes}"
        )
    wrong = ((table < 0) | (table > 1)).nonzero()
    if len(wrong):
        row, column = (int(i) for i in wrong[0])
        raise ConfigError(f"{what} has {float(table[row, column]):g} at row {row}, column {column}: not in 0..1")
