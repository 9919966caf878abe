"""One complementary label that is not uniform: annotators exclude some classes more readily than others.

Yu, Liu, Gong, Tao. Learning with Biased Complementary Labels. ECCV 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_builtins.generators import matrices
from wsl_builtins.generators.sampling import draw_column
from wsl_toolkit import Generator, Setting, param
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class ClBiased(Generator):
    """One complementary label ȳ with probability Q[y, ȳ]; Q has a zero diagonal and rows that sum to 1."""

    name: ClassVar[str] = "cl-biased"
    setting: ClassVar[Setting] = Setting.GENERAL
    citation: ClassVar[str] = "Yu, Liu, Gong, Tao (ECCV 2018)"

    matrix: str = param(
        "skewed",
        help=f"Q as a preset: {', '.join(matrices.COMPLEMENT)}, or a file (.csv, .npy) with a K×K matrix",
    )
    ratio: float = param(
        0.5, help="of preset 'skewed': each next class is this much less likely; files ignore it", gt=0
    )
    table: Any = attrs.field(init=False, default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        matrices.read_into(self, matrices.COMPLEMENT)

    def transition(self, num_classes: int) -> Tensor:
        """Return Q, float64 [K, K]."""
        if self.table is not None:
            table: Tensor = self.table
            return table
        return matrices.COMPLEMENT[self.matrix](num_classes, self.ratio)

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        transition = self.transition(num_classes)
        what = f"cl-biased: matrix {self.matrix}"
        matrices.check_probabilities(transition, num_classes, what)
        on_diagonal = transition.diagonal().nonzero().flatten()
        if len(on_diagonal):
            y = int(on_diagonal[0])
            raise ConfigError(
                f"{what} has {float(transition[y, y]):g} on its diagonal at class {y}: it must be 0 there"
            )
        off = (transition.sum(1) - 1).abs()
        if float(off.max()) > 1e-6:
            row = int(off.argmax())
            raise ConfigError(f"{what}: row {row} sums to {float(transition[row].sum()):g}, not to 1")

    def reads_inputs(self) -> bool:
        return False

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        import torch

        excluded = draw_column(self.transition(num_classes).to(y.device)[y], rng)
        mask = torch.ones(len(y), num_classes, dtype=torch.bool, device=y.device)
        return mask.scatter_(1, excluded.unsqueeze(1), False)

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        import torch

        weights = self.transition(num_classes).to(y.device)
        weights = weights / weights.sum(1, keepdim=True)  # rows of a file may be rounded; draws are in proportion
        one_out = (~sets).sum(1) == 1
        chance = weights[y].masked_fill(sets, 0).sum(1)
        return torch.where(one_out, chance, torch.zeros_like(chance))
