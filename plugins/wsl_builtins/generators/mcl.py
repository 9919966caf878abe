"""Multiple complementary labels: the size of s̄ is drawn first, then s̄ uniformly among sets of that size.

Feng, Kaneko, Han, Niu, An, Sugiyama. Learning with Multiple Complementary Labels. ICML 2020.
The α-skewed size law is from Section 4 of Wu, Lv, Sugiyama. Learning with Proper Partial Labels. 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.generators.sampling import draw_complement, draw_sizes
from wsl_toolkit import ProperGenerator, Setting, param

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class MclSkewed(ProperGenerator):
    """Multiple complementary labels, fewer of them more likely: Q̄_{k+1} = α Q̄_k for |s̄| = 1..K-1."""

    name: ClassVar[str] = "mcl-skewed"
    setting: ClassVar[Setting] = Setting.MCL
    citation: ClassVar[str] = "Wu, Lv, Sugiyama (2023), Section 4; Feng et al. (ICML 2020)"

    alpha: float = param(0.7, help="ratio of successive size probabilities; smaller means larger candidate sets", gt=0)

    def complement_sizes(self, num_classes: int) -> Tensor:
        """Return Q̄_k for k = 1..K-1, float64."""
        import torch

        exponents = torch.arange(num_classes - 1, dtype=torch.float64)
        return torch.softmax(exponents * torch.log(torch.tensor(self.alpha, dtype=torch.float64)), dim=0)

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        sizes = draw_sizes(self.complement_sizes(num_classes), len(y), rng).to(y.device) + 1
        return draw_complement(y, sizes, num_classes, rng)

    def constant(self, sets: Tensor, x: Tensor, num_classes: int) -> Tensor:
        """C(x, s) = Q̄_{|s̄|} / binom(K-1, |s̄|) (Table 1)."""
        import torch

        sizes = torch.arange(1, num_classes, dtype=torch.float64)
        log_binomial = (
            torch.lgamma(torch.tensor(float(num_classes), dtype=torch.float64))
            - torch.lgamma(sizes + 1)
            - torch.lgamma(num_classes - sizes)
        )
        table = torch.zeros(num_classes + 1, dtype=torch.float64)  # sizes 0 and K are impossible
        table[1:num_classes] = self.complement_sizes(num_classes) * torch.exp(-log_binomial)
        return table[(~sets).sum(1).cpu()].to(sets.device)
