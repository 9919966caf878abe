"""Multiple complementary labels: the size of s̄ is drawn first, then s̄ uniformly among sets of that size.

Feng, Kaneko, Han, Niu, An, Sugiyama. Learning with Multiple Complementary Labels. ICML 2020.
The α-skewed size law is from Section 4 of Wu, Lv, Sugiyama. Learning with Proper Partial Labels. 2023.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.generators import size_laws
from wsl_builtins.generators.sampling import draw_complement, draw_index
from wsl_toolkit import ProperGenerator, Setting, param
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class BySize(ProperGenerator):
    """A generator of MCL: all there is to say is how likely each number of complementary labels is."""

    setting: ClassVar[Setting] = Setting.MCL

    @abstractmethod
    def complement_sizes(self, num_classes: int) -> Tensor:
        """Return Q̄_k = P(|s̄| = k) for k = 1..K-1, float64."""

    def reads_inputs(self) -> bool:
        return False

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        excluded = draw_index(self.complement_sizes(num_classes), len(y), rng) + 1
        return draw_complement(y, excluded, num_classes, rng)

    def constant(self, sets: Tensor, x: Tensor, num_classes: int) -> Tensor:
        return size_laws.constant_by_size(self.complement_sizes(num_classes), sets)


@attrs.frozen(kw_only=True)
class Mcl(BySize):
    """Multiple complementary labels with any law of their number."""

    name: ClassVar[str] = "mcl"
    citation: ClassVar[str] = "Feng, Kaneko, Han, Niu, An, Sugiyama (ICML 2020)"

    sizes: tuple[float, ...] | None = param(
        None, help="probabilities of 1, 2, … complementary labels, as '0.5,0.3,0.2'; not given: all equal", ge=0
    )

    def __attrs_post_init__(self) -> None:
        if self.sizes is not None and not math.isclose(sum(self.sizes), 1, abs_tol=1e-6):
            raise ConfigError(f"mcl: sizes must sum to 1, not to {sum(self.sizes):g}")

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        if self.sizes is not None and len(self.sizes) > num_classes - 1:
            raise ConfigError(
                f"mcl: sizes has {len(self.sizes)} entries, but {num_classes} classes leave room "
                f"for 1 to {num_classes - 1} complementary labels"
            )

    def complement_sizes(self, num_classes: int) -> Tensor:
        """Return the given law, zero beyond its end, or the uniform one."""
        import torch

        if self.sizes is None:
            return torch.full((num_classes - 1,), 1 / (num_classes - 1), dtype=torch.float64)
        law = torch.zeros(num_classes - 1, dtype=torch.float64)
        law[: len(self.sizes)] = torch.tensor(self.sizes, dtype=torch.float64)
        return law / law.sum()


@attrs.frozen(kw_only=True)
class MclSkewed(BySize):
    """Multiple complementary labels, fewer of them more likely: Q̄_{k+1} = α Q̄_k for |s̄| = 1..K-1."""

    name: ClassVar[str] = "mcl-skewed"
    citation: ClassVar[str] = "Wu, Lv, Sugiyama (2023), Section 4; Feng et al. (ICML 2020)"

    alpha: float = param(0.7, help="ratio of successive size probabilities; smaller means larger candidate sets", gt=0)

    def complement_sizes(self, num_classes: int) -> Tensor:
        return size_laws.skewed(self.alpha, num_classes)
