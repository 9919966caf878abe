"""Ordinary supervised learning: the upper bound that every other estimator is measured against."""

from __future__ import annotations

from typing import ClassVar

import attrs

from wsl_builtins.estimators.shared import MeanEstimator
from wsl_toolkit import Kind, Setting


@attrs.frozen(kw_only=True)
class Supervised(MeanEstimator):
    """The loss ℓ_y with the true label: the oracle, and the only estimator that may see it.

    The engine trains on the singletons {y}, so that the mean over the set has one term. On held-out candidate sets,
    which hide the label, it is that of `average`.
    """

    name: ClassVar[str] = "supervised"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.UNBIASED
    needs: ClassVar[frozenset[str]] = frozenset({"true_labels"})
