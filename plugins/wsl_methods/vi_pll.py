"""Variational inference of the label, with a generative model of the inputs.

Fuchs, Klein. Variational Inference for Partial-Label Learning: A Probabilistic Approach to Label Disambiguation. 2025
(VI-PLL).

    y ~ Dir(1 + softplus f),   f: the mean of two networks' logits, each of the input with a little noise
    L = E_y Σ_j y_j (log y_j - c log π_j - λ log p̂(x|j) - log w_j) + ‖x̂ - x‖²/d + KL(N(m, v) ‖ N(0, 1))/l
    w ← E[y] on s, divided by its largest value;   w begins as 1 on the candidates
    π: the shares of the classes of largest entropy such that each class has at least the share of sets {j}, at most
       that of sets with j
    x̂ = decoder(z, w),  z ~ N(m, v) = encoder(x, w):  a variational auto-encoder given the label, trained beside
    p̂(x|j) = 1/M Σ_z N(x; decoder(z, j), σ²)^{1/d} (N(z; 0, 1) / N(z; m_j, v_j))^{0.01/l}
             z ~ N(m_j, v_j) = encoder(x, j)

E is a mean over M samples; d and l are the sizes of x and z. σ is a moving mean of the root of ‖x̂ - x‖²/d. 1e-10 is
added within logarithms. Predictions are E[y] = (1 + softplus f), normalised.

Read in the authors' code; the paper's text was not at hand. Settled as there: M = 10, c = 0 and λ = 10 by default
(their runs choose both for each data set, and λ = 200 for images); the likelihood is a constant of the step. Settled
here: they train the auto-encoder alone for 500 epochs first, with an optimiser and a step size of its own; an estimator
trains with one optimiser from the first epoch on, so that λ counts and σ stands still only after `warm_up` epochs.
Inputs are standardised, theirs lie between 0 and 1, which their decoder's last layer is made for; here it is linear.
Before a convolutional network x is the image averaged to 8×8 points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from wsl_toolkit import Estimator, Kind, Setting, State, param

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wsl_toolkit import CandidateSets

SMALL = 1e-10
"""What is added within logarithms."""
SIGMA_RATE = 0.05
"""How fast σ follows."""


@attrs.frozen(kw_only=True)
class VariationalInference(Estimator):
    """A Dirichlet distribution of the label that explains the set, the input and the classes' shares.

    No promise about bias or consistency is made.
    """

    name: ClassVar[str] = "vi-pll"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    citation: ClassVar[str] = "Fuchs, Klein (2025)"
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"membership"})
    needs: ClassVar[frozenset[str]] = frozenset({"two_networks", "epoch"})
    stackable: ClassVar[bool] = False

    likelihood: float = param(10.0, help="λ: how much the input counts", ge=0)
    prior: float = param(0.0, help="c: how much the classes' shares count", ge=0)
    warm_up: int = param(500, help="epochs before the input counts", ge=0)
    samples: int = param(10, help="M: how many samples a mean is taken over", ge=1)
    noise: float = param(0.01, help="deviation of the noise that each network's input has", ge=0)
    hidden: int = param(128, help="hidden units of the encoder and of the decoder", ge=1)
    latent: int = param(32, help="l: size of z", ge=1)

    def extend_two(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Put noise, samples and a variational auto-encoder around two networks."""
        from wsl_methods.generative import Generative

        return Generative(
            build(),
            self.needs,
            second=build(),
            samples=self.samples,
            noise=self.noise,
            hidden=self.hidden,
            latent=self.latent,
        )

    def init_state(self, candidates: Tensor) -> State:
        """Every candidate alike."""
        return {"membership": candidates.float()}

    def init_shared(self, candidates: CandidateSets) -> State:
        """σ of standardised inputs of which nothing is known, and π."""
        import torch

        alone = torch.nonzero(candidates.sizes == 1).flatten()
        low = candidates.take(alone).class_counts() if len(alone) else torch.zeros(candidates.num_classes)
        low, high = (counts.to("cpu", torch.float64) / len(candidates) for counts in (low, candidates.class_counts()))
        return {"sigma": torch.ones(()), "class_share": most_even(low, high).float()}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """L of every example."""
        sampled = state["samples"]
        counts = self.likelihood * (state["epoch"] >= self.warm_up).to(sampled.dtype)
        known = counts * state["log_likelihood"] + (state["membership"] + SMALL).log()
        known = known + self.prior * (state["class_share"] + SMALL).log()
        bound = (sampled * ((sampled + SMALL).log() - known.unsqueeze(1))).sum(-1).mean(1)
        missed, divergence = self._rebuilt(state)
        return bound + missed + divergence

    def _rebuilt(self, state: State) -> tuple[Tensor, Tensor]:
        """‖x̂ - x‖²/d and the divergence of z from its prior, of each example."""
        from wsl_methods.generative import decoded, encoded

        mean, log_variance = encoded(state, state["inputs"], state["membership"])
        latent = mean + (0.5 * log_variance).exp() * state["latent_noise"]
        missed = (decoded(state, latent, state["membership"]) - state["inputs"]).square().mean(-1)
        return missed, -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean(-1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """w from the expected label, and σ."""
        import torch

        alpha = 1 + torch.nn.functional.softplus(logits)
        inside = alpha * candidates
        inside = inside / inside.amax(-1, keepdim=True)
        sigma = state["sigma"]
        followed = torch.lerp(sigma, self._rebuilt(state)[0].mean().sqrt().to(sigma.dtype), SIGMA_RATE)
        return {
            "membership": inside.to(state["membership"].dtype),
            "sigma": torch.where(state["epoch"] < self.warm_up, followed, sigma),
        }

    def report(self, state: State) -> dict[str, Tensor]:
        """σ: how well inputs are rebuilt."""
        return {"sigma": state["sigma"]}


def most_even(low: Tensor, high: Tensor) -> Tensor:
    """Return the shares between these bounds, [K], that sum to 1 and have the largest entropy.

    They are one number, cut off at the bounds of each class: by the entropy's derivative all that are free are equal.
    """
    import torch

    least, most = torch.zeros((), dtype=low.dtype), torch.ones((), dtype=low.dtype)
    for _ in range(60):
        level = (least + most) / 2
        small = torch.clamp(level, low, high).sum() < 1
        least, most = torch.where(small, level, least), torch.where(small, most, level)
    return torch.clamp(most, low, high)


ESTIMATORS: list[type[Estimator]] = [VariationalInference]
