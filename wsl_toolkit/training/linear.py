"""Linear models: which networks are one, their forward pass in the order that suits few classes, their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator

FEW_CLASSES = 32
WIDE = 256
"""For fewer classes and wider inputs, weights [K, d] times inputs [d, B] are faster than inputs times weights: of 784
inputs and ten classes in two thirds of the time. Logits then lie class by class, which suits softmaxes, too."""


def is_linear_model(network: nn.Module) -> bool:
    """Return whether a network flattens its input, applies one linear layer and does nothing else."""
    if type(network) is not nn.Sequential or [type(layer) for layer in network] != [nn.Flatten, nn.Linear]:
        return False
    flattens_all = isinstance(network[0], nn.Flatten) and (network[0].start_dim, network[0].end_dim) == (1, -1)
    return flattens_all and not _hooked(list(network.modules()))


def turned_forward(network: nn.Module) -> Callable[[Tensor], Any] | None:
    """Return a linear model's forward pass that computes logits [B, K] class by class; None where that is no faster."""
    if not is_linear_model(network):
        return None
    layer = network[1]  # type: ignore[index]
    if not isinstance(layer, nn.Linear) or layer.out_features >= FEW_CLASSES or layer.in_features < WIDE:
        return None
    modules = list(network.modules())

    def forward(inputs: Tensor) -> Any:
        if _hooked(modules):  # somebody wants to see what passes
            return network(inputs)
        columns, bias = inputs.flatten(1).t(), layer._parameters["bias"]
        if bias is None:
            return torch.mm(layer.weight, columns).t()
        return torch.addmm(bias.unsqueeze(1), layer.weight, columns).t()

    return forward


def gradient_writer(network: nn.Module) -> Callable[[Tensor, Tensor], None] | None:
    """Return what writes a linear model's gradients, given its inputs and the loss's gradient in its logits [B, K].

    None for another network. What torch adds around the matrix products is a good part of so small a model's step.
    """
    if not is_linear_model(network):
        return None
    layer = network[1]  # type: ignore[index]

    def write(inputs: Tensor, slopes: Tensor) -> None:
        by_class = slopes.t()
        if layer.weight.requires_grad:
            layer.weight.grad = torch.mm(by_class, inputs.flatten(1))
        if layer.bias is not None and layer.bias.requires_grad:
            layer.bias.grad = by_class.sum(1)

    return write


def is_watched(network: nn.Module) -> bool:
    """Return whether somebody hooked into a network or its parameters, and so wants torch to differentiate it."""
    parameters = network.parameters()
    return _hooked(list(network.modules())) or any(p._backward_hooks or _after_grad(p) for p in parameters)


def _after_grad(parameter: nn.Parameter) -> Any:
    return getattr(parameter, "_post_accumulate_grad_hooks", None)


def differentiates_itself(estimator: Estimator) -> bool:
    """Return whether an estimator's own gradient is that of its own loss, and of what a batch minimises."""
    cls = type(estimator)
    if not estimator.has_gradient or cls.objective is not Estimator.objective:
        return False
    # A class that changes the loss that it inherits says nothing of the gradient that it inherits.
    definers = [next(each for each in cls.__mro__ if name in vars(each)) for name in ("loss_and_gradient", "loss")]
    return issubclass(*definers)


def _hooked(modules: Sequence[nn.Module]) -> bool:
    return any(each._forward_hooks or each._forward_pre_hooks or each._backward_hooks for each in modules)
