"""Learning from complementary labels with pairwise comparison.

Ishida, Niu, Hu, Sugiyama. Learning from Complementary Labels. NeurIPS 2017.

    L(f, y) = Σ_{j≠y} σ(f_j - f_y)        estimated by  (K-1) Σ_{j≠ȳ} σ(f_ȳ - f_j) - K(K-1)/2 + K-1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import complement_mean
from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.losses import lifted

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class PairwiseComparison(Estimator):
    """Unbiased pairwise-comparison risk with the sigmoid loss, averaged over s̄ where |s̄| > 1.

    Every pair of classes is compared, so a batch takes B·K² memory. A full set weighs nothing.
    """

    name: ClassVar[str] = "cl-pc"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Ishida et al. (NeurIPS 2017)"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        f = lifted(logits)
        num_classes = f.shape[-1]
        # [..., ȳ, j] -> Σ_j σ(f_ȳ - f_j); the pair of ȳ with itself is σ(0) = 1/2, taken off again.
        against = torch.sigmoid(f.unsqueeze(-1) - f.unsqueeze(-2)).sum(-1) - 0.5
        constant = num_classes * (num_classes - 1) / 2 - (num_classes - 1)
        return complement_mean((num_classes - 1) * against - constant, candidates)
