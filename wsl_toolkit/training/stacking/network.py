"""Many networks of one architecture as one: parameters [M, …], logits [B, M, K]."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from wsl_toolkit.training.linear import is_linear_model
from wsl_toolkit.training.stacking.layers import layered_forward, plain_layers


class StackedNetwork(nn.Module):
    """M networks in one set of tensors; the members' own parameters and buffers become views into it.

    Inputs are [B, …], the same for all members, or [B, M, …] where each has its own.
    """

    def __init__(self, members: Sequence[nn.Module], *, own_inputs: bool) -> None:
        super().__init__()
        self.own_inputs = own_inputs
        # Only its code is used, so that it needs no memory; it keeps train and eval modes and batch norm's switches.
        self.template = copy.deepcopy(members[0]).requires_grad_(False).to("meta")
        self.folds = is_linear_model(self.template)
        """Whether all members are linear models, so that they are one matrix product."""
        self._layers = plain_layers(self.template)
        self._names = [name for name, _ in members[0].named_parameters()]
        each = [dict(member.named_parameters()) for member in members]
        self._stacked = nn.ParameterList(
            nn.Parameter(self._lay_out(torch.stack([own[name].detach() for own in each])), each[0][name].requires_grad)
            for name in self._names
        )
        buffers = [dict(member.named_buffers()) for member in members]
        self._stacked_buffers = {name: torch.stack([own[name] for own in buffers]) for name in buffers[0]}
        for m, (own, own_buffers) in enumerate(zip(each, buffers, strict=True)):
            for name, stacked in self.stacked_parameters().items():
                own[name].data = stacked.data[m]
            for name, stacked_buffer in self._stacked_buffers.items():
                own_buffers[name].data = stacked_buffer[m]
        self._vmapped = torch.vmap(self._one, in_dims=(0, 0, 1 if own_inputs else None), out_dims=1, randomness="error")

    def _lay_out(self, stacked: Tensor) -> Tensor:
        """Return a stacked parameter as it lies best: a folded weight [M, K, d] in memory as [d, M, K].

        Then both products, with the inputs and with the gradient, are of matrices that lie as the kernels like them.
        """
        if self.folds and not self.own_inputs and stacked.ndim == 3:
            return stacked.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        return stacked

    def stacked_parameters(self) -> dict[str, nn.Parameter]:
        """Return the members' parameters by name, each [M, …]."""
        return dict(zip(self._names, self._stacked, strict=True))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return all members' logits, [B, M, K]."""
        if not self.folds and self._layers is not None:
            flat = inputs.flatten(2 if self.own_inputs else 1)
            return layered_forward(self._layers, self.stacked_parameters(), self._stacked_buffers, flat)
        if not self.folds:
            logits: Tensor = self._vmapped(self.stacked_parameters(), self._stacked_buffers, inputs)
            return logits
        weight, bias = self._stacked[0], self._stacked[1] if len(self._stacked) > 1 else None
        if self.own_inputs:
            # [M, K, d] times [M, d, B]: in this order the kernels for few classes are twice as fast.
            products: Tensor = torch.bmm(weight, inputs.flatten(2).permute(1, 2, 0)).permute(2, 0, 1)
            return products if bias is None else products + bias
        # One matrix product for all: [B, d] times [d, M K].
        folded: Tensor = functional.linear(
            inputs.flatten(1), weight.flatten(0, 1), None if bias is None else bias.flatten()
        )
        return folded.view(len(folded), *weight.shape[:2])

    def write_gradients(self, inputs: Tensor, slopes: Tensor) -> None:
        """Write the gradients of linear models, given the losses' gradients in their logits, [B, M, K]."""
        weight, bias = self._stacked[0], self._stacked[1] if len(self._stacked) > 1 else None
        if weight.requires_grad and self.own_inputs:
            weight.grad = torch.bmm(slopes.permute(1, 2, 0), inputs.flatten(2).transpose(0, 1))
        elif weight.requires_grad:
            folded = torch.mm(inputs.flatten(1).t(), slopes.flatten(1))  # lies as the weight does
            weight.grad = folded.view(-1, *weight.shape[:2]).permute(1, 2, 0)
        if bias is not None and bias.requires_grad:
            bias.grad = slopes.sum(0)

    def _one(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Tensor) -> Any:
        return functional_call(self.template, (dict(parameters), dict(buffers)), (inputs,))
