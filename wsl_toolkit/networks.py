"""What a network can give beside its logits, for estimators that declare they need it.

Most methods train the backbone as it is. One whose `needs` name more gets an `Extended` network: in training its
forward pass returns logits and a dictionary of extras that joins the estimator's `state`; in evaluation it is the
backbone and nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from wsl_toolkit.components import State
from wsl_toolkit.errors import PluginError


class Extended(nn.Module):
    """A network with a second view, features or a momentum copy around it; which of them, `needs` says.

    Extras, each [B, …] and only where needed: `view_logits` of the second view; `features` (and `view_features`), what
    the classifier's last layer sees, through `project` if given; `momentum_logits` and `momentum_features` of a copy
    that follows the network slowly, without gradient, on the second view if there is one.
    """

    def __init__(
        self,
        network: nn.Module,
        needs: frozenset[str],
        *,
        project: nn.Module | None = None,
        augment: Callable[[Tensor], Tensor] | None = None,
        decay: float = 0.999,
    ) -> None:
        super().__init__()
        self.network = network
        self.project = project if project is not None else nn.Identity()
        self.needs = needs
        self.augment = augment or jitter
        self.decay = decay
        self.slow: nn.ModuleList | None = None
        if "momentum" in needs:
            self.slow = copy.deepcopy(nn.ModuleList([network, self.project])).requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, State]:
        """Return logits in evaluation; logits and extras in training."""
        if not self.training:
            logits: Tensor = self.network(inputs)
            return logits
        logits, extras = self._outputs(self.network, self.project, inputs, "")
        view = inputs
        if "second_view" in self.needs:
            view = self.augment(inputs)
            view_logits, view_extras = self._outputs(self.network, self.project, view, "view_")
            extras |= {"view_logits": view_logits, **view_extras}
        if self.slow is not None:
            with torch.no_grad():
                slow_logits, slow_extras = self._outputs(self.slow[0], self.slow[1], view, "momentum_")
            extras |= {"momentum_logits": slow_logits, **slow_extras}
        return logits, extras

    def _outputs(self, network: nn.Module, project: nn.Module, inputs: Tensor, prefix: str) -> tuple[Tensor, State]:
        if "features" not in self.needs:
            return network(inputs), {}
        logits, features = logits_and_features(network, inputs)
        return logits, {f"{prefix}features": project(features)}

    @torch.no_grad()
    def after_step(self) -> None:
        """Let the momentum copy follow; the engine calls it after each step of the optimiser."""
        if self.slow is None:
            return
        live = nn.ModuleList([self.network, self.project])
        for slow, fast in zip(self.slow.parameters(), live.parameters(), strict=True):
            slow.lerp_(fast, 1 - self.decay)


def run(model: nn.Module, inputs: Tensor) -> tuple[Tensor, State]:
    """Return a model's logits and its extras; an ordinary network has none."""
    return split_output(model(inputs))


def split_output(output: Any) -> tuple[Tensor, State]:
    """Return the logits and the extras of what a network returned."""
    return output if isinstance(output, tuple) else (output, {})


def plain(model: nn.Module) -> nn.Module:
    """Return the network that predicts, without the machinery that trained it."""
    return model.network if isinstance(model, Extended) else model


def classifier(network: nn.Module) -> nn.Linear:
    """Return a network's last linear layer, whose input is what methods call features."""
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise PluginError("the estimator needs features, but this backbone has no linear layer to take them from")
    return layers[-1]


def logits_and_features(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return a network's logits and what its last linear layer saw, [B, d]."""
    seen: list[Tensor] = []
    handle = classifier(network).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        logits = network(inputs)
    finally:
        handle.remove()
    return logits, seen[-1].flatten(1)


def jitter(inputs: Tensor, noise: float = 0.1) -> Tensor:
    """Return another view: images shifted by up to an eighth of their side, and a little noise on every number."""
    if inputs.ndim == 4:
        inputs = _shifted(inputs)
    return inputs + noise * torch.randn_like(inputs)


def _shifted(images: Tensor) -> Tensor:
    n, _, height, width = images.shape
    rows, columns = (_shifted_positions(n, side, images.device) for side in (height, width))
    # Indices around a slice put the indexed dimensions first: [n, H, W, C].
    picked = images[torch.arange(n, device=images.device)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2)


def _shifted_positions(n: int, side: int, device: torch.device) -> Tensor:
    """Return for each image where its rows (or columns) come from; the border repeats."""
    reach = max(1, side // 8)
    shift = torch.randint(-reach, reach + 1, (n, 1), device=device)
    return (torch.arange(side, device=device) + shift).clamp_(0, side - 1)
