"""What a fit comes to: a network with its preprocessing, and how it was chosen."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.data.dataset import transform_inputs
from wsl_toolkit.data.problem import Change
from wsl_toolkit.own_data import set_laws
from wsl_toolkit.own_data.averaging import Average, AverageChoice
from wsl_toolkit.own_data.choices import Choice, NetworkChoice
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.formulas import candidate_confidence

LOGIT_ROWS = 65_536


@attrs.frozen(kw_only=True, eq=False)
class Fitted:
    """A network (or trees, or an average of models) with its preprocessing, and how it was chosen."""

    network: nn.Module
    transform: nn.Module
    choice: Choice | AverageChoice
    temperature: float = 1.0
    tried: tuple[dict[str, Any], ...] = ()
    """Each choice that was tried, with the log loss of held-out sets and its temperature."""
    left_out: tuple[tuple[str, str], ...] = ()
    """What was not tried, and why."""
    laws: tuple[tuple[str, float], ...] = ()
    """Laws by which sets may come about, the one that was chosen first, each with the log loss of held-out sets."""
    chances: tuple[Tensor, Tensor] | None = None
    """Q [K, K] of the law that was chosen and of the uniform one, see `set_laws`; None: the uniform one was."""
    seconds: float = 0.0
    change: Change | None = None
    """What a transform made of the sets that the model learned from; evaluation alone reads it."""

    @property
    def training(self) -> Training | None:
        """How the network was trained; None for trees and averages."""
        return self.choice.training if isinstance(self.choice, NetworkChoice) else None

    def logits(self, x: Tensor, index: Tensor | None = None) -> Tensor:
        """Return the logits of raw inputs divided by the temperature, on the CPU, chunk by chunk."""
        parts = (torch.arange(len(x)) if index is None else index).split(LOGIT_ROWS)
        device = next(iter(self.network.state_dict().values())).device
        found = [predict(self.network, transform_inputs(self.transform, x, part).to(device)).cpu() for part in parts]
        return torch.cat(found) / self.temperature

    def shares(self, logits: Tensor, sets: Tensor) -> Tensor:
        """Return r_j, which share of its set's likelihood each candidate has, [n, K]: p_j, times what the law says."""
        if self.chances is None:
            return candidate_confidence(logits, sets)
        worth = set_laws.log_worth(*self.chances, sets).to(logits.dtype)
        return candidate_confidence(logits + worth, sets)

    def uncalibrated(self) -> Fitted:
        """Return the same with every temperature at 1."""
        network = self.network.uncalibrated() if isinstance(self.network, Average) else self.network
        return attrs.evolve(self, network=network, temperature=1.0)
