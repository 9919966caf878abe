"""One module per paper."""

from __future__ import annotations

from wsl_builtins.estimators.cc import ClassifierConsistent
from wsl_builtins.estimators.ppl import ProperPartialLabels
from wsl_builtins.estimators.supervised import Supervised
from wsl_toolkit import Estimator

ESTIMATORS: list[type[Estimator]] = [ClassifierConsistent, ProperPartialLabels, Supervised]
