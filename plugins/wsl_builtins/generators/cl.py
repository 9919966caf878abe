"""Complementary labels: one class that an example does not belong to, uniform among the wrong ones.

Ishida, Niu, Hu, Sugiyama. Learning from Complementary Labels. NeurIPS 2017.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.generators.mcl import BySize
from wsl_toolkit import Setting

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Cl(BySize):
    """One complementary label, uniform among the K-1 wrong classes."""

    name: ClassVar[str] = "cl"
    setting: ClassVar[Setting] = Setting.CL
    citation: ClassVar[str] = "Ishida, Niu, Hu, Sugiyama (NeurIPS 2017)"

    def complement_sizes(self, num_classes: int) -> Tensor:
        """All weight on |s̄| = 1."""
        import torch

        law = torch.zeros(num_classes - 1, dtype=torch.float64)
        law[0] = 1.0
        return law
