"""Optimisers of many models at once, each with its own learning rate and weight decay: SGD, Adam and AdamW."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

STACKED = ("sgd", "adam", "adamw")
"""Names of the optimisers that step many models at once."""
ONLY_THESE = "only sgd, adam and adamw step many models at once"


class StackedOptimiser(ABC):
    """Takes the steps of the members' own optimisers; what those gather becomes views of stacked tensors."""

    def __init__(
        self,
        stacked: Mapping[str, nn.Parameter],
        members: Sequence[Optimizer],
        member_parameters: Sequence[Mapping[str, nn.Parameter]],
    ) -> None:
        self._members = members
        self._names = [name for name, parameter in stacked.items() if parameter.requires_grad]
        self._parameters = [stacked[name] for name in self._names]
        self._own = [[parameters[name] for parameters in member_parameters] for name in self._names]
        self._lr = self._room()
        self._decay = self._room()
        self.read_rates()
        self._adopt()

    @abstractmethod
    def _adopt(self) -> None:
        """Stack what the members have gathered so far."""

    @abstractmethod
    def step(self) -> None:
        """Take a step of every model."""

    def read_rates(self) -> None:
        """Take the members' learning rates, weight decays and momentum as they are now."""
        groups = [member.param_groups[0] for member in self._members]
        self._fill(self._lr, [float(group["lr"]) for group in groups])
        self._fill(self._decay, [float(group["weight_decay"]) for group in groups])
        self._decays = any(group["weight_decay"] for group in groups)

    def _adopt_buffers(self, name: str) -> list[Tensor]:
        """Return [M, …] for each parameter with what the members keep under a name, and make theirs views of it."""
        found = []
        for stacked, own in zip(self._parameters, self._own, strict=True):
            buffer = torch.zeros_like(stacked)
            for m, (member, parameter) in enumerate(zip(self._members, own, strict=True)):
                state = member.state[parameter]
                if state.get(name) is not None:
                    buffer[m] = state[name]
                state[name] = buffer[m]
            found.append(buffer)
        return found

    def _room(self) -> list[Tensor]:
        """Return room for one value of each model in the form that multiplies each stacked parameter, [M, k, 1, …]."""
        # Written out along the second dimension: a folded layer has [M, k] innermost in memory.
        return [p.new_empty((*p.shape[:2], *(1,) * (p.ndim - 2))) for p in self._parameters]

    def _fill(self, room: Sequence[Tensor], values: Sequence[float]) -> None:
        each = torch.tensor(values, dtype=torch.float64)
        for spread in room:
            spread.copy_(each.view(-1, *(1,) * (spread.ndim - 1)))


class StackedSGD(StackedOptimiser):
    """Takes the steps of the members' torch.optim.SGD."""

    def _adopt(self) -> None:
        self._buffers = self._adopt_buffers("momentum_buffer") if self._momentum else []

    def read_rates(self) -> None:
        """Take the members' learning rates, weight decays and momentum as they are now."""
        super().read_rates()
        self._momentum = float(self._members[0].param_groups[0]["momentum"])

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


class StackedAdam(StackedOptimiser):
    """Takes the steps of the members' torch.optim.Adam or AdamW, which all have taken equally many."""

    def _adopt(self) -> None:
        self._eps = float(self._members[0].param_groups[0]["eps"])
        self._decoupled = isinstance(self._members[0], AdamW)
        self._means = self._adopt_buffers("exp_avg")
        self._squares = self._adopt_buffers("exp_avg_sq")
        self._steps: list[Tensor] = []
        self._counts: list[int] = []
        """How many steps each parameter has taken: as the members keep it, float [M], and as a number of Python's."""
        for own in self._own:
            states = [member.state[parameter] for member, parameter in zip(self._members, own, strict=True)]
            taken = torch.tensor([float(state.get("step", 0.0)) for state in states], device=own[0].device)
            for m, state in enumerate(states):
                state["step"] = taken[m]
            self._steps.append(taken)
            self._counts.append(int(taken[0]))

    def read_rates(self) -> None:
        """Take the members' learning rates, weight decays and betas as they are now."""
        super().read_rates()
        self._betas = tuple(map(float, self._members[0].param_groups[0]["betas"]))

    @torch.no_grad()
    def step(self) -> None:
        """Take a step: m = β₁ m + (1-β₁) g, v = β₂ v + (1-β₂) g², w = w - lr m̂ / (√v̂ + ε).

        m̂ and v̂ are m / (1-β₁ᵗ) and v / (1-β₂ᵗ). Weight decay is a part of g = ∇ + wd w, or, for AdamW, it comes
        before that: w = (1 - lr wd) w.
        """
        first, second = self._betas
        for place, parameter in enumerate(self._parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            self._steps[place] += 1
            self._counts[place] += 1
            if self._decays and self._decoupled:
                parameter.mul_(1 - self._lr[place] * self._decay[place])
            elif self._decays:
                gradient.addcmul_(parameter, self._decay[place])
            mean = self._means[place].lerp_(gradient, 1 - first)
            square = self._squares[place].mul_(second).addcmul_(gradient, gradient, value=1 - second)
            count = self._counts[place]
            below = square.sqrt().div_((1 - second**count) ** 0.5).add_(self._eps)
            parameter.addcdiv_(mean * self._lr[place], below, value=-1 / (1 - first**count))


def stacked_optimiser(
    stacked: Mapping[str, nn.Parameter],
    members: Sequence[Optimizer],
    member_parameters: Sequence[Mapping[str, nn.Parameter]],
) -> StackedOptimiser:
    """Return what steps for optimisers that can step together."""
    cls = StackedSGD if isinstance(members[0], SGD) else StackedAdam
    return cls(stacked, members, member_parameters)


def why_not_together(optimizers: Sequence[Optimizer]) -> str | None:
    """Return why these optimisers cannot step together, or None."""
    first = type(optimizers[0])
    if first not in (SGD, Adam, AdamW) or any(type(optimizer) is not first for optimizer in optimizers):
        return ONLY_THESE
    if any(len(optimizer.param_groups) != 1 for optimizer in optimizers):
        return "an optimiser treats some parameters differently from others"
    groups: list[dict[str, Any]] = [optimizer.param_groups[0] for optimizer in optimizers]
    if any(group.get(name) for group in groups for name in ("nesterov", "dampening", "maximize", "amsgrad")):
        return "nesterov, dampening, amsgrad and maximisation are for one model at a time"
    for name in ("momentum", "betas", "eps"):
        if any(group.get(name) != groups[0].get(name) for group in groups):
            return f"{name} differs between the models"
    return None
