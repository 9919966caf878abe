"""Two networks, and a variational auto-encoder of the inputs given a label; imported only where one is built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from wsl_methods.modules import POINTS
from wsl_toolkit import State
from wsl_toolkit.networks import Extended, classifier

PRIOR_WEIGHT = 0.01
"""How much the latent's densities count in a likelihood."""


class Generative(Extended):
    """Two networks whose mean logits make a Dirichlet distribution, and an auto-encoder given a label.

    Extras: `samples` [B, M, K] of that distribution, with gradient; `inputs`, flat; `log_likelihood` [B, K] of the
    inputs given each class, constants; `latent_noise` [B, l]; and, since only the estimator knows the labels, the
    auto-encoder's weights, `vae_…`.
    """

    def __init__(
        self,
        network: nn.Module,
        needs: frozenset[str],
        *,
        samples: int,
        noise: float,
        hidden: int,
        latent: int,
        **options: Any,
    ) -> None:
        super().__init__(network, needs, **options)
        self.samples, self.noise, self.latent = samples, noise, latent
        first = next(layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d))
        self.pooled = isinstance(first, nn.Conv2d)
        width = first.in_channels * POINTS**2 if isinstance(first, nn.Conv2d) else first.in_features
        self.classes = classifier(network).out_features
        layers = {
            "encoder": nn.Linear(width + self.classes, hidden),
            "mean": nn.Linear(hidden, latent),
            "log_variance": nn.Linear(hidden, latent),
            "decoder": nn.Linear(latent + self.classes, hidden),
            "output": nn.Linear(hidden, width),
        }
        self.vae = nn.ModuleDict(layers)
        self.register_buffer("sigma", torch.ones(()))

    def weights(self) -> State:
        """Return the auto-encoder's weights by the names that the estimator gets them by."""
        return {f"vae_{name.replace('.', '_')}": weight for name, weight in self.vae.named_parameters()}

    def look(self, inputs: Tensor) -> tuple[Tensor, State]:
        """Return the mean of both networks' logits, and the extras."""
        assert self.second is not None
        noisy = [inputs + self.noise * torch.randn_like(inputs) for _ in range(2)]
        second: Tensor = self.second(noisy[1])
        logits: Tensor = (self.network(noisy[0]) + second) / 2
        law = torch.distributions.Dirichlet(1 + functional.softplus(logits), validate_args=False)
        goal = (functional.adaptive_avg_pool2d(inputs, POINTS) if self.pooled else inputs).flatten(1)
        weights = self.weights()
        extras = {
            "second_logits": second,
            "samples": law.rsample((self.samples,)).transpose(0, 1),
            "inputs": goal,
            "log_likelihood": self.log_likelihood(goal, weights),
            "latent_noise": torch.randn(len(goal), self.latent, dtype=goal.dtype, device=goal.device),
        }
        return logits, {**extras, **weights}

    @torch.no_grad()
    def log_likelihood(self, inputs: Tensor, weights: State) -> Tensor:
        """Return log p̂(x|j) of all classes, [B, K]."""
        labels = torch.eye(self.classes, dtype=inputs.dtype, device=inputs.device)
        n = len(inputs)
        given = labels.expand(n, -1, -1)
        shown = inputs.unsqueeze(1).expand(-1, self.classes, -1)
        mean, log_variance = encoded(weights, shown, given)
        noise = torch.randn(self.samples, *mean.shape, dtype=inputs.dtype, device=inputs.device)
        latent = mean + (0.5 * log_variance).exp() * noise
        missed = (decoded(weights, latent, given.expand(self.samples, -1, -1, -1)) - shown).square().mean(-1)
        variance = self.get_buffer("sigma").to(inputs.dtype).square()
        fit = -0.5 * (missed / variance + torch.log(2 * math.pi * variance))
        # The constants of both normal densities cancel.
        densities = -0.5 * latent.square().mean(-1) + 0.5 * (noise.square() + log_variance).mean(-1)
        return torch.logsumexp(fit + PRIOR_WEIGHT * densities, dim=0) - math.log(self.samples)

    def after_epoch(self, state: State) -> None:
        """Take over σ, which likelihoods are computed with."""
        self.get_buffer("sigma").copy_(state["sigma"])

    def predictor(self) -> nn.Module:
        """Return both networks, whose mean logits make the expected label."""
        assert self.second is not None
        return ExpectedLabel(self.network, self.second)


class ExpectedLabel(nn.Module):
    """Logarithms of 1 + softplus of two networks' mean logits: their softmax is the mean of the Dirichlet."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits."""
        return torch.log1p(functional.softplus((self.first(inputs) + self.second(inputs)) / 2))


def encoded(weights: Mapping[str, Tensor], inputs: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and log-variance of z given inputs [..., d] and labels [..., K]."""
    hidden = torch.relu(layer(weights, "encoder", torch.cat([inputs, label.to(inputs.dtype)], dim=-1)))
    return layer(weights, "mean", hidden), layer(weights, "log_variance", hidden)


def decoded(weights: Mapping[str, Tensor], latent: Tensor, label: Tensor) -> Tensor:
    """Return inputs [..., d] rebuilt from z and labels."""
    hidden = torch.relu(layer(weights, "decoder", torch.cat([latent, label.to(latent.dtype)], dim=-1)))
    return layer(weights, "output", hidden)


def layer(weights: Mapping[str, Tensor], name: str, inputs: Tensor) -> Tensor:
    """Return what one layer of the auto-encoder makes of its inputs."""
    return functional.linear(inputs, weights[f"vae_{name}_weight"], weights[f"vae_{name}_bias"])
