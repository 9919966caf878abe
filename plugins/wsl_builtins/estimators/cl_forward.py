"""Forward correction for complementary labels: the likelihood of the complementary label itself.

Yu, Liu, Gong, Tao. Learning with Biased Complementary Labels. ECCV 2018.

    -log (Qᵀ p)_ȳ,   Q[y, ȳ] = p(ȳ | y)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import complement_mean
from wsl_builtins.generators import matrices
from wsl_builtins.generators.cl_biased import ClBiased
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.losses import cross_entropy, log_not

if TYPE_CHECKING:
    from torch import Tensor

    from wsl_toolkit import CandidateSets

UNIFORM = "uniform"


@attrs.frozen(kw_only=True)
class Forward(Estimator):
    """Forward correction, -log (Qᵀp)_ȳ with a known Q, averaged over s̄ where |s̄| > 1; a full set weighs nothing.

    With the uniform Q it is classifier-consistent under MCL; with the Q of `cl-biased`, where Q is invertible, under
    that process. Any Q but the uniform one takes B·K² memory.
    """

    name: ClassVar[str] = "cl-forward"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Yu, Liu, Gong, Tao (ECCV 2018)"

    matrix: str = param(
        UNIFORM, help=f"Q as a preset: {', '.join(matrices.COMPLEMENT)}, or a file (.csv, .npy) with a K×K matrix"
    )
    ratio: float = param(0.5, help="of preset 'skewed': each next class is this much less likely", gt=0)

    def __attrs_post_init__(self) -> None:
        self.process()

    def process(self) -> ClBiased:
        """Return the process whose likelihood this is."""
        try:
            return ClBiased(matrix=self.matrix, ratio=self.ratio)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from None

    def init_shared(self, candidates: CandidateSets) -> State:
        """log Q, unless it is uniform and has a closed form."""
        if self.matrix == UNIFORM:
            return {}
        process = self.process()
        process.check_classes(candidates.num_classes)
        transition = process.transition(candidates.num_classes)
        impossible = (transition.sum(0) == 0).nonzero().flatten()
        if len(impossible):
            raise ConfigError(
                f"{self.name}: matrix {self.matrix} says that class {int(impossible[0])} is never a complementary label"
            )
        return {"log_matrix": transition.log().float().to(candidates.sizes.device)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        if self.matrix == UNIFORM:  # (Qᵀp)_ȳ = (1 - p_ȳ) / (K-1)
            log_chance = log_not(logits) - math.log(max(logits.shape[-1] - 1, 1))
        else:
            log_p = -cross_entropy(logits)
            log_chance = torch.logsumexp(log_p.unsqueeze(-1) + state["log_matrix"].to(log_p.dtype), dim=-2)
        return complement_mean(-log_chance, candidates)
