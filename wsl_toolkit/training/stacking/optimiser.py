"""Stochastic gradient descent for many models at once, each with its own learning rate and weight decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer


class StackedSGD:
    """Takes the steps of the members' torch.optim.SGD; their momentum buffers become views of the stacked ones."""

    def __init__(
        self,
        stacked: Mapping[str, nn.Parameter],
        members: Sequence[Optimizer],
        member_parameters: Sequence[Mapping[str, nn.Parameter]],
    ) -> None:
        self._members = members
        self._parameters = [parameter for parameter in stacked.values() if parameter.requires_grad]
        self._momentum = float(members[0].param_groups[0]["momentum"])
        self._buffers: list[Tensor] = []
        if self._momentum:
            for name, parameter in stacked.items():
                if parameter.requires_grad:
                    own = [parameters[name] for parameters in member_parameters]
                    self._buffers.append(self._adopt_buffers(parameter, own))
        self.read_rates()

    def _adopt_buffers(self, stacked: Tensor, own: Sequence[nn.Parameter]) -> Tensor:
        """Return momentum [M, …] with what the members have gathered so far, and let them see it from now on."""
        buffer = torch.zeros_like(stacked)
        for m, (member, parameter) in enumerate(zip(self._members, own, strict=True)):
            state = member.state[parameter]
            if state.get("momentum_buffer") is not None:
                buffer[m] = state["momentum_buffer"]
            state["momentum_buffer"] = buffer[m]
        return buffer

    def read_rates(self) -> None:
        """Take the members' learning rates and weight decays as they are now."""
        groups = [member.param_groups[0] for member in self._members]
        self._lr = self._spread([float(group["lr"]) for group in groups])
        self._decay = self._spread([float(group["weight_decay"]) for group in groups])
        self._decays = any(group["weight_decay"] for group in groups)

    def _spread(self, values: Sequence[float]) -> list[Tensor]:
        """Return one value for each model in the form that multiplies each stacked parameter, [M, k, 1, …]."""
        found = []
        for parameter in self._parameters:
            each = torch.tensor(values, device=parameter.device).view(-1, *(1,) * (parameter.ndim - 1))
            # Written out along the second dimension: a folded layer has [M, k] innermost in memory.
            rows = (*parameter.shape[:2], *(1,) * (parameter.ndim - 2))
            found.append(each.expand(rows).contiguous())
        return found

    @torch.no_grad()
    def step(self) -> None:
        """Take a step: g = ∇ + wd w, b = μ b + g, w = w - lr b, where each model has its own lr and wd."""
        for place, parameter in enumerate(self._parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            if self._decays:
                gradient = gradient.addcmul_(parameter, self._decay[place])
            if self._momentum:
                buffer = self._buffers[place]
                gradient = torch.add(gradient, buffer, alpha=self._momentum, out=buffer)
            parameter.addcmul_(gradient, self._lr[place], value=-1)


def why_not_sgd(optimizers: Sequence[Optimizer]) -> str | None:
    """Return why these optimisers cannot step together, or None."""
    if any(type(optimizer) is not SGD for optimizer in optimizers):
        return "only sgd steps many models at once"
    if any(len(optimizer.param_groups) != 1 for optimizer in optimizers):
        return "an optimiser treats some parameters differently from others"
    groups: list[dict[str, Any]] = [optimizer.param_groups[0] for optimizer in optimizers]
    if any(group["nesterov"] or group["dampening"] or group["maximize"] for group in groups):
        return "nesterov, dampening and maximisation are for one model at a time"
    if any(group["momentum"] != groups[0]["momentum"] for group in groups):
        return "momentum differs between the models"
    return None
