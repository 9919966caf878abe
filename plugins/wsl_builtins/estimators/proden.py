"""Progressive identification of true labels.

Lv, Xu, Feng, Niu, Geng, Sugiyama. Progressive Identification of True Labels for Partial-Label Learning. ICML 2020.

    min_f 1/n Σ_i Σ_{j∈s_i} w_ij ℓ_j(f(x_i)),   w_ij ← p_j(x_i) / Σ_{k∈s_i} p_k(x_i)
"""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs

from wsl_builtins.estimators.shared import ConfidenceEstimator
from wsl_toolkit import Kind, Setting


@attrs.frozen(kw_only=True)
class Proden(ConfidenceEstimator):
    """The loss of `ppl`, but confidences come from the logits before the step: no second forward pass.

    Its authors prove classifier-consistency for deterministic labels; as an estimator of the risk it is Eq. (11) of
    Wu, Lv and Sugiyama, and so unbiased in every proper setting with the true p(y|x).
    """

    name: ClassVar[str] = "proden"
    assumption: ClassVar[Setting] = Setting.PPL
    kind: ClassVar[Kind] = Kind.UNBIASED
    citation: ClassVar[str] = "Lv et al. (ICML 2020)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
