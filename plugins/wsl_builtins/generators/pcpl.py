"""Uniform candidate sets: as the paper states them, and as the authors' code draws them.

Feng, Lv, Han, Xu, Niu, Geng, An, Sugiyama. Provably Consistent Partial-Label Learning. NeurIPS 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.generators import size_laws
from wsl_builtins.generators.mcl import BySize
from wsl_toolkit import Setting

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Pcpl(BySize):
    """Every admissible set that holds y is equally likely: p(s|x,y) = 1/(2^(K-1) - 1)."""

    name: ClassVar[str] = "pcpl"
    setting: ClassVar[Setting] = Setting.PCPL
    citation: ClassVar[str] = "Feng, Lv, Han, Xu, Niu, Geng, An, Sugiyama (NeurIPS 2020)"

    def complement_sizes(self, num_classes: int) -> Tensor:
        """Q̄_k = binom(K-1, k) / (2^(K-1) - 1) (Proposition 2)."""
        return size_laws.binomial(0.5, num_classes)


@attrs.frozen(kw_only=True)
class PcplSymmetric(BySize):
    """Sizes as if s were uniform before y is known, |s| ∝ binom(K, k): what the RC and CC authors' code draws."""

    name: ClassVar[str] = "pcpl-symmetric"
    citation: ClassVar[str] = "code of Feng et al. (NeurIPS 2020); E|s| = K/2, the 5.0 of Wu et al.'s Table 2"

    def complement_sizes(self, num_classes: int) -> Tensor:
        """Q̄_k = binom(K, k) / (2^K - 2)."""
        import torch

        return torch.softmax(size_laws.log_binomial(num_classes)[1:num_classes], dim=0)
