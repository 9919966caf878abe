"""Order-preserving losses: fit the complementary label with the classes' order turned round.

Liu, Cao, Zhang, Feng, An. Consistent Complementary-Label Learning via Order-Preserving Losses. AISTATS 2023.

    OP:    -log q_ȳ,   q = softmax(-f)
    OP-W:  -(v_ȳ p_ȳ + 1e-6) log q_ȳ,   v = softmax(1 + 1/q),   p = softmax(f)

libcll's "OP" and PLENCH's "OP-W" are the second, whose weight is differentiated with the rest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.shared import complement_mean
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import cross_entropy, lifted, softmax

if TYPE_CHECKING:
    from torch import Tensor

LEAST_WEIGHT = 1e-6
"""What public code adds to every weight."""

LARGEST_INVERSE = 1e18
"""Where 1/q ends; public code adds 1/this to q."""


@attrs.frozen(kw_only=True)
class OrderPreserving(Estimator):
    """Order-preserving cross-entropy, -log softmax(-f)_ȳ, averaged over s̄ where |s̄| > 1; a full set weighs nothing.

    Under MCL it is least where softmax(-f) is the mean of p(ȳ|x), which falls as p(y|x) rises.
    """

    name: ClassVar[str] = "op"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Liu et al. (AISTATS 2023)"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return complement_mean(cross_entropy(-logits), candidates)


@attrs.frozen(kw_only=True)
class OrderPreservingWeighted(Estimator):
    """Reweighted order-preserving loss, -(v_ȳ p_ȳ + 1e-6) log softmax(-f)_ȳ with v = softmax(1 + 1/softmax(-f)).

    Given the logits' values it grows with f_ȳ, so under MCL the likeliest class has the largest logit where the
    expectation is least. Averaged over s̄ where |s̄| > 1; a full set weighs nothing.
    """

    name: ClassVar[str] = "op-w"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Liu et al. (AISTATS 2023)"

    weight_gradient: bool = param(
        True, help="whether the weight is differentiated too, as in public code; its gradient grows as 1/softmax(-f)"
    )

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        f = lifted(logits)
        source = f if self.weight_gradient else f.detach()
        # 1/q as exp(-log q): the derivative of a plain inverse would be its square, and overflow.
        inverse = torch.exp(cross_entropy(-source).clamp(max=math.log(LARGEST_INVERSE)))
        weight = softmax(source) * softmax(1 + inverse) + LEAST_WEIGHT
        return complement_mean(weight * cross_entropy(-f), candidates)


ESTIMATORS: list[type[Estimator]] = [OrderPreserving, OrderPreservingWeighted]
