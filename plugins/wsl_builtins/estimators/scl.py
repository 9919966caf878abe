"""Surrogate complementary losses: bound the complementary 0-1 loss directly, at the price of bias.

Chou, Niu, Lin, Sugiyama. Unbiased Risk Estimators Can Mislead. ICML 2020.

    NL:   -log(1 - p_ȳ)          EXP:  e^{p_ȳ}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import complement_mean
from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.losses import log_not, softmax

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class SurrogateNegativeLog(Estimator):
    """Negative learning, -log(1 - p_ȳ), averaged over s̄ where |s̄| > 1; a full set weighs nothing.

    Under MCL it is minimised by p(y|x) itself. It is `cl-forward` with the uniform matrix but for log(K-1).
    """

    name: ClassVar[str] = "scl-nl"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Chou et al. (ICML 2020)"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return complement_mean(-log_not(logits), candidates)


@attrs.frozen(kw_only=True)
class SurrogateExponential(Estimator):
    """Exponential surrogate, e^{p_ȳ}, averaged over s̄ where |s̄| > 1; a full set weighs nothing.

    Under MCL its minimiser ranks the classes rightly but is not p(y|x).
    """

    name: ClassVar[str] = "scl-exp"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Chou et al. (ICML 2020)"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        return complement_mean(torch.exp(softmax(logits)), candidates)
