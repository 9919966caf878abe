"""Partial labels with a margin: the best candidate above the best of the other labels.

Nguyen, Caruana. Classification with Partial Labels. KDD 2008 (PL-SVM).

    ℓ = max(0, 1 - max_{j∈s} f_j + max_{k∉s} f_k)

With the backbone `linear` and weight decay it is their support vector machine. Read in the public code of later
comparisons (Fuchs, Kalinke et al.), which takes stochastic steps on this loss with a step size of its own; the paper's
text and its authors' code were not at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.losses import confined

if TYPE_CHECKING:
    from torch import Tensor


@attrs.frozen(kw_only=True)
class PartialLabelMargin(Estimator):
    """Hinge loss of the margin between the best candidate and the best of the other labels; a full set has none.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "pl-svm"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Nguyen, Caruana (KDD 2008)"

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        inside, outside = (confined(logits, members).amax(-1) for members in (candidates, ~candidates))
        return (1 - inside + outside).clamp(min=0)


ESTIMATORS: list[type[Estimator]] = [PartialLabelMargin]
