"""The average-based strategy: every candidate is as good as another.

Hüllermeier, Beringer. Learning from Ambiguously Labeled Examples. Intelligent Data Analysis, 2006.

    1/|s| Σ_{j∈s} ℓ_j
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from wsl_builtins.estimators.shared import MeanEstimator
from wsl_toolkit import Kind, Setting


@attrs.frozen(kw_only=True)
class Average(MeanEstimator):
    """Mean loss over the candidates, 1/|s| Σ_{j∈s} ℓ_j: the plain baseline.

    A biased estimate of the risk. Under MCL its expectation weighs class j by a + b p(y=j|x) with b > 0, so a proper
    loss still ranks the classes rightly; the probabilities come out too flat.
    """

    name: ClassVar[str] = "average"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = "Hüllermeier, Beringer (2006)"
