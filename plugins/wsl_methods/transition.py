"""What methods with a known matrix Q[y, ȳ] = p(ȳ | y) share: reading it, checking it, inverting it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wsl_builtins.generators import matrices
from wsl_builtins.generators.cl_biased import ClBiased
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

UNIFORM = "uniform"
MATRIX_HELP = f"Q as a preset: {', '.join(matrices.COMPLEMENT)}, or a file (.csv, .npy) with a K×K matrix"
RATIO_HELP = "of preset 'skewed': each next class is this much less likely"
LARGEST_CONDITION = 1e8
"""A matrix whose condition number (in the 1-norm) is larger has no inverse that would be worth anything."""


class HasMatrix(Protocol):
    """An estimator with the parameters `matrix` and `ratio`."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def matrix(self) -> str:
        """A preset's name, or a file."""

    @property
    def ratio(self) -> float:
        """Of the preset 'skewed'."""


def process_of(estimator: HasMatrix) -> ClBiased:
    """Return the process that an estimator assumes, or say that its matrix cannot be read."""
    try:
        return ClBiased(matrix=estimator.matrix, ratio=estimator.ratio)
    except ConfigError as error:
        raise ConfigError(f"{estimator.name}: {error}") from None


def transition_of(estimator: HasMatrix, num_classes: int) -> Tensor:
    """Return Q, float64 [K, K], checked: a zero diagonal, rows that sum to 1."""
    if estimator.matrix == UNIFORM:
        return matrices.uniform_complement(num_classes, estimator.ratio)
    process = process_of(estimator)
    process.check_classes(num_classes)
    table = process.transition(num_classes)
    return table / table.sum(1, keepdim=True)


def inverse_of(estimator: HasMatrix, num_classes: int) -> Tensor:
    """Return Q⁻¹, float64 [K, K], or say that there is none."""
    import torch

    if estimator.matrix == UNIFORM:
        return 1 - (num_classes - 1) * torch.eye(num_classes, dtype=torch.float64)
    table = transition_of(estimator, num_classes)
    inverse: Tensor
    inverse, singular = torch.linalg.inv_ex(table)
    if int(singular) or not float(table.abs().sum(0).max() * inverse.abs().sum(0).max()) <= LARGEST_CONDITION:
        raise ConfigError(
            f"{estimator.name}: matrix {estimator.matrix} of {num_classes} classes has no inverse, so p(ȳ|x) does not "
            "determine p(y|x); choose another matrix"
        )
    return inverse
