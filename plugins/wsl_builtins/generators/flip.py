"""Wrong labels join one by one: with one probability, by class, or by instance; full sets are redrawn.

The class-independent process is that of Lv, Xu, Feng, Niu, Geng, Sugiyama. Progressive Identification of True Labels
for Partial-Label Learning. ICML 2020, and of most benchmarks since. Without the redraw it would emit the full set
with probability q^(K-1), which is 39 % at q = 0.9 and K = 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_builtins.generators import matrices, size_laws
from wsl_builtins.generators.mcl import BySize
from wsl_builtins.generators.sampling import draw_joining, joining_probability
from wsl_toolkit import Generator, Setting, param
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Flip(BySize):
    """Every wrong label joins with probability q, whatever the class; a full set is redrawn."""

    name: ClassVar[str] = "flip"
    citation: ClassVar[str] = "Lv, Xu, Feng, Niu, Geng, Sugiyama (ICML 2020)"

    q: float = param(0.3, help="probability that a wrong label joins the set", ge=0, lt=1)

    def complement_sizes(self, num_classes: int) -> Tensor:
        """Q̄_k ∝ binom(K-1, k) (1-q)^k q^(K-1-k): the binomial law without k = 0."""
        return size_laws.binomial(self.q, num_classes)


@attrs.frozen(kw_only=True)
class FlipClass(Generator):
    """Wrong label j joins with probability T[y, j]; a full set is redrawn."""

    name: ClassVar[str] = "flip-class"
    setting: ClassVar[Setting] = Setting.GENERAL
    citation: ClassVar[str] = "Wen, Cui, Hang, Liu, Wang, Lin (ICML 2021)"

    matrix: str = param(
        "pair",
        help=f"how labels join: {', '.join(matrices.JOINING)}, or a file (.csv, .npy) with a K×K matrix T",
    )
    rate: float = param(0.5, help="joining probability of the presets; files ignore it", ge=0, le=1)
    table: Any = attrs.field(init=False, default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        matrices.read_into(self, matrices.JOINING)

    def joining(self, num_classes: int) -> Tensor:
        """Return T, float64 [K, K]; its diagonal means nothing."""
        if self.table is not None:
            table: Tensor = self.table
            return table
        return matrices.JOINING[self.matrix](num_classes, self.rate)

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        joins = self.joining(num_classes)
        matrices.check_probabilities(joins, num_classes, f"flip-class: matrix {self.matrix}")
        certain = joins.clone().fill_diagonal_(1).eq(1).all(1).nonzero().flatten()
        if len(certain):
            raise ConfigError(
                f"flip-class: matrix {self.matrix} lets every wrong label join class {int(certain[0])} with "
                "probability 1, so that only the full set could be drawn; lower one of them"
            )

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        return draw_joining(y, self.joining(num_classes).to(y.device)[y], rng)

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        return joining_probability(sets, y, self.joining(num_classes).to(y.device)[y])
