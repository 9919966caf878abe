"""One module per paper."""

from __future__ import annotations

from wsl_builtins.estimators.average import Average
from wsl_builtins.estimators.pcpl import ClassifierConsistent, RiskConsistent, RiskConsistentAsPrinted
from wsl_builtins.estimators.ppl import ProperPartialLabels
from wsl_builtins.estimators.proden import Proden
from wsl_builtins.estimators.supervised import Supervised
from wsl_toolkit import Estimator

ESTIMATORS: list[type[Estimator]] = [
    Average,
    ClassifierConsistent,
    Proden,
    ProperPartialLabels,
    RiskConsistent,
    RiskConsistentAsPrinted,
    Supervised,
]
