"""The networks of complementary probability estimates: logits in training, distances to the rows of Q in evaluation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wsl_toolkit.networks import classifier


class Decoded(nn.Module):
    """A network that is trained on its logits and predicts by the ℓ₁ distance of its p(ȳ|x) to the rows of Q.

    With `negated`, p(ȳ|x) is softmax(-f); otherwise Qᵀ softmax(f). With `trained`, Q is only where its own matrix
    starts, and training returns log T [B, K, K] beside the logits.
    """

    def __init__(self, network: nn.Module, matrix: Tensor, *, negated: bool = False, trained: bool = False) -> None:
        super().__init__()
        self.network = network
        self.negated = negated
        self.register_buffer("log_matrix", matrix.log().float())
        self.shift = nn.Parameter(torch.zeros(matrix.shape)) if trained else None

    def log_transition(self) -> Tensor:
        """Return log Q, or log T of a trained matrix, [K, K]."""
        start = self.get_buffer("log_matrix")
        return start if self.shift is None else torch.log_softmax(start + self.shift, dim=-1)

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        """Return logits (and log T) in training, minus the distances [B, K] in evaluation."""
        logits: Tensor = self.network(inputs)
        rows = self.log_transition().to(logits.dtype)
        if self.training:
            return logits if self.shift is None else (logits, {"log_transition": rows.expand(len(logits), -1, -1)})
        rows = rows.exp()
        estimate = torch.softmax(-logits, dim=-1) if self.negated else torch.softmax(logits, dim=-1) @ rows
        return -(estimate.unsqueeze(-2) - rows).abs().sum(-1)


def classes_of(network: nn.Module) -> int:
    """Return how many classes a network tells apart."""
    return classifier(network).out_features
