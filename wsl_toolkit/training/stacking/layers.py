"""Perceptrons of many models at once, layer by layer: what torch.vmap computes, without its cost for each step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

KINDS = (nn.Flatten, nn.Linear, nn.BatchNorm1d, nn.ReLU)


def plain_layers(network: nn.Module) -> dict[str, nn.Module] | None:
    """Return a perceptron's layers by name if nothing but these kinds follow each other in it; None otherwise."""
    if type(network) is not nn.Sequential:
        return None
    layers = dict(network.named_children())
    first = next(iter(layers.values()), None)
    if not isinstance(first, nn.Flatten) or (first.start_dim, first.end_dim) != (1, -1):
        return None
    return layers if all(type(layer) in KINDS and _is_usual(layer) for layer in layers.values()) else None


def _is_usual(layer: nn.Module) -> bool:
    """Return whether a layer is as torch makes it: not hooked, not parametrised, its norm's average exponential."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    if any(hooks):
        return False
    return not isinstance(layer, nn.BatchNorm1d) or (layer.affine and layer.momentum is not None)


def layered_forward(
    layers: Mapping[str, nn.Module], parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Tensor
) -> Tensor:
    """Return all models' outputs [B, M, K], of inputs [B, d] that all share or [B, M, d] of each one's own.

    `parameters` and `buffers` are all models', [M, …], by name; batch norms write their running statistics there.
    """
    x = inputs
    for name, layer in layers.items():
        own = {key.removeprefix(f"{name}."): value for key, value in parameters.items() if key.startswith(f"{name}.")}
        if isinstance(layer, nn.Linear):
            x = _linear(x, own["weight"], own.get("bias"))
        elif isinstance(layer, nn.BatchNorm1d):
            x = _batch_norm(layer, x, own, buffers, name)
        elif isinstance(layer, nn.ReLU):
            x = functional.relu(x)
    return x


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return [B, M, k] of [B, d] or [B, M, d]."""
    if x.ndim == 2:
        folded = functional.linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
        return folded.view(len(x), *weight.shape[:2])
    products = torch.bmm(x.transpose(0, 1), weight.transpose(1, 2))
    return (products if bias is None else products + bias.unsqueeze(1)).transpose(0, 1)


def _batch_norm(
    norm: nn.BatchNorm1d, x: Tensor, own: Mapping[str, Tensor], buffers: Mapping[str, Tensor], name: str
) -> Tensor:
    """Return [B, M, k] of [B, k] or [B, M, k]: the units of all models are those of one wide layer."""
    x = x.unsqueeze(1).expand(-1, len(own["weight"]), -1) if x.ndim == 2 else x
    mean, var = (buffers.get(f"{name}.{each}") for each in ("running_mean", "running_var"))
    learns = norm.training and norm.track_running_stats and mean is not None
    if learns:
        buffers[f"{name}.num_batches_tracked"].add_(1)
    known = mean is not None and var is not None and (learns or not norm.training)
    found = functional.batch_norm(
        x.flatten(1),
        mean.flatten() if known and mean is not None else None,
        var.flatten() if known and var is not None else None,
        own["weight"].flatten(),
        own["bias"].flatten(),
        training=norm.training or not known,
        momentum=norm.momentum or 0.0,
        eps=norm.eps,
    )
    return found.view(x.shape)
