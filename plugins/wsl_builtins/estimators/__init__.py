"""One module per paper."""

from __future__ import annotations

from wsl_builtins.estimators.average import Average
from wsl_builtins.estimators.cl import Complementary, GradientAscent, NonNegative
from wsl_builtins.estimators.cl_forward import Forward
from wsl_builtins.estimators.cl_pc import PairwiseComparison
from wsl_builtins.estimators.lw import LeveragedWeighted
from wsl_builtins.estimators.mcl import MclExp, MclLog, MclMae, MultipleComplementary
from wsl_builtins.estimators.pcpl import ClassifierConsistent, RiskConsistent, RiskConsistentAsPrinted
from wsl_builtins.estimators.ppl import ProperPartialLabels
from wsl_builtins.estimators.proden import Proden
from wsl_builtins.estimators.scl import SurrogateExponential, SurrogateNegativeLog
from wsl_builtins.estimators.supervised import Supervised
from wsl_toolkit import Estimator

ESTIMATORS: list[type[Estimator]] = [
    Average,
    ClassifierConsistent,
    Complementary,
    Forward,
    GradientAscent,
    LeveragedWeighted,
    MclExp,
    MclLog,
    MclMae,
    MultipleComplementary,
    NonNegative,
    PairwiseComparison,
    Proden,
    ProperPartialLabels,
    RiskConsistent,
    RiskConsistentAsPrinted,
    Supervised,
    SurrogateExponential,
    SurrogateNegativeLog,
]
