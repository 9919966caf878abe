"""Complementary probability estimates: estimate p(ȳ|x), then decode it into a class.

Lin, Lin. Reduction from Complementary-Label Learning to Probability Estimates. PAKDD 2023.

    estimate:  -log p̄_ȳ       I: p̄ = softmax(-f)       F: p̄ = Qᵀ softmax(f)       T: p̄ = Tᵀ softmax(f), T trained from Q
    decode:    ŷ = argmin_k ‖p̄ - Q_k‖₁, Q_k the k-th row of Q (T: of T)

In I the network gives p̄ as it is; its logits are written with a minus, so that the largest is the class that is least
excluded. Under the uniform Q decoding chooses exactly the largest f_k: p̄_k - |1/(K-1) - p̄_k| rises with p̄_k. Then I is
`op`, F is `cl-forward`, and the network predicts as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.estimators.cl_forward import Forward
from wsl_builtins.estimators.shared import complement_mean
from wsl_methods.transition import MATRIX_HELP, RATIO_HELP, UNIFORM, process_of, transition_of
from wsl_toolkit import Estimator, Kind, Setting, State, param
from wsl_toolkit.losses import cross_entropy

if TYPE_CHECKING:
    from torch import Tensor, nn

CITATION = "Lin, Lin (PAKDD 2023)"


@attrs.frozen(kw_only=True)
class EstimateAsItIs(Estimator):
    """CPE-I: the network estimates p(ȳ|x), -log softmax(-f)_ȳ; the class whose row of Q is nearest is predicted.

    Consistent under MCL with the uniform Q, and under `cl-biased` with that process's own, where no two rows of Q are
    the same. Averaged over s̄ where |s̄| > 1; a full set weighs nothing.

    Where the matrix is not uniform, what the network gives in evaluation are minus distances, at most 2 apart: their
    softmax orders the classes as decoding does, but is no p(y|x), and never above 1/(1 + (K-1) e^-2), 0.787 of three
    classes. Metrics and files that show probabilities of such a model show that.
    """

    name: ClassVar[str] = "cpe-i"
    assumption: ClassVar[Setting] = Setting.MCL
    kind: ClassVar[Kind] = Kind.CONSISTENT
    citation: ClassVar[str] = CITATION

    matrix: str = param(UNIFORM, help=MATRIX_HELP)
    ratio: float = param(0.5, help=RATIO_HELP, gt=0)

    def __attrs_post_init__(self) -> None:
        process_of(self)

    @property
    def logits_suffice(self) -> bool:
        """Only where nothing is decoded: otherwise what evaluation sees are distances."""
        return self.matrix == UNIFORM

    def extend(self, network: nn.Module) -> nn.Module:
        """Return the network that predicts by distance, where that is another prediction."""
        if self.matrix == UNIFORM:
            return network
        from wsl_methods.cpe_networks import Decoded, classes_of

        return Decoded(network, transition_of(self, classes_of(network)), negated=True)

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return complement_mean(cross_entropy(-logits), candidates)


@attrs.frozen(kw_only=True)
class EstimateThroughMatrix(Forward):
    """CPE-F: p(ȳ|x) through the known Q, -log (Qᵀp)_ȳ as in `cl-forward`; the class of the nearest row is predicted.

    Averaged over s̄ where |s̄| > 1; a full set weighs nothing.

    Where the matrix is not uniform, what the network gives in evaluation are minus distances, at most 2 apart: their
    softmax orders the classes as decoding does, but is no p(y|x), and never above 1/(1 + (K-1) e^-2), 0.787 of three
    classes. Metrics and files that show probabilities of such a model show that.
    """

    name: ClassVar[str] = "cpe-f"
    citation: ClassVar[str] = CITATION

    @property
    def logits_suffice(self) -> bool:
        """Only where nothing is decoded: otherwise what evaluation sees are distances."""
        return self.matrix == UNIFORM

    def extend(self, network: nn.Module) -> nn.Module:
        """Return the network that predicts by distance, where that is another prediction."""
        if self.matrix == UNIFORM:
            return network
        from wsl_methods.cpe_networks import Decoded, classes_of

        return Decoded(network, transition_of(self, classes_of(network)))


@attrs.frozen(kw_only=True)
class EstimateThroughTrainedMatrix(EstimateThroughMatrix):
    """CPE-T: p(ȳ|x) through a matrix that starts as Q and is trained with the network, for when Q is not quite right.

    T = softmax(log Q + U) row by row with U trained from 0, so what Q forbids stays forbidden, and weight decay pulls
    towards Q. No promise is made: T and the network may share the work in more than one way.

    What the network gives in evaluation are minus distances, at most 2 apart: their softmax orders the classes as
    decoding does, but is no p(y|x), and never above 1/(1 + (K-1) e^-2), 0.787 of three classes. Metrics and files that
    show probabilities of such a model show that.
    """

    name: ClassVar[str] = "cpe-t"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    stackable: ClassVar[bool] = False

    @property
    def logits_suffice(self) -> bool:
        """Never: T is the network's."""
        return False

    def extend(self, network: nn.Module) -> nn.Module:
        """Return the network with the matrix around it."""
        from wsl_methods.cpe_networks import Decoded, classes_of

        return Decoded(network, transition_of(self, classes_of(network)), trained=True)

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        import torch

        log_p = -cross_entropy(logits)
        log_chance = torch.logsumexp(log_p.unsqueeze(-1) + state["log_transition"], dim=-2)
        return complement_mean(-log_chance, candidates)


ESTIMATORS: list[type[Estimator]] = [EstimateAsItIs, EstimateThroughMatrix, EstimateThroughTrainedMatrix]
