"""Optimisers by name: torch's own, fused where that is supported, and those of plugins."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import torch
from torch import nn

from wsl_toolkit.components import Optimizer
from wsl_toolkit.errors import ConfigError, PluginError, did_you_mean
from wsl_toolkit.parameters import construct, param, values_of
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.loading import load_plugins

# LBFGS wants a closure that evaluates the loss again, and SparseAdam sparse gradients: neither fits the loop.
_UNSUITABLE = {"Optimizer", "LBFGS", "SparseAdam"}


def _known_optimizers() -> dict[str, type[torch.optim.Optimizer]]:
    classes = (value for value in vars(torch.optim).values() if isinstance(value, type))
    suitable = (c for c in classes if issubclass(c, torch.optim.Optimizer) and c.__name__ not in _UNSUITABLE)
    return {c.__name__.lower(): c for c in suitable}


OPTIMIZERS = tuple(sorted(_known_optimizers()))
"""Names that `make_optimizer` knows: the optimisers of the installed torch, in lower case."""


_SET_ELSEWHERE = {"params", "lr", "weight_decay", "momentum", "maximize"}
_ENGINE = {"fused", "foreach", "capturable", "differentiable"}
"""What a training sets elsewhere, or what is the engine's to decide."""


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """Return torch's optimiser of a name."""
    known = _known_optimizers()
    if name not in known:
        everything = [*OPTIMIZERS, *load_plugins().registry.names("optimizer")]
        hint = did_you_mean(name.lower(), everything) or f" Known: {', '.join(everything)}."
        raise ConfigError(f"no optimiser is named {name!r}.{hint}")
    return known[name]


def plugin_optimizer(name: str) -> type[Optimizer] | None:
    """Return the optimiser that a plugin registered under a name; torch's names are torch's."""
    registry = load_plugins().registry
    if name in OPTIMIZERS or name not in registry.names("optimizer"):
        return None
    cls: type[Optimizer] = registry.get("optimizer", name)
    return cls


@functools.cache
def options_class(name: str) -> type:
    """Return a class whose `param()` fields are an optimiser's own options, read off torch's signature if it is one."""
    if (own := plugin_optimizer(name)) is not None:
        return own
    annotations: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(optimizer_class(name)).parameters.values():
        default = parameter.default
        if parameter.name in _SET_ELSEWHERE | _ENGINE:
            continue
        if isinstance(default, bool):
            annotations[parameter.name] = bool
        elif isinstance(default, int | float):  # torch writes `dampening: float = 0`
            annotations[parameter.name] = int if parameter.annotation in (int, "int") else float
        elif isinstance(default, tuple) and None not in default:
            annotations[parameter.name] = tuple[float, ...]
        else:
            continue
        fields[parameter.name] = param(default, help=f"torch's {parameter.name} of {name}")
    about = {"__annotations__": annotations, "name": f"optimizer {name}"}
    return attrs.frozen(kw_only=True)(type(f"{name.capitalize()}Options", (), {**about, **fields}))


def takes_momentum(name: str) -> bool:
    """Return whether an optimiser has a momentum to set."""
    return plugin_optimizer(name) is not None or "momentum" in inspect.signature(optimizer_class(name)).parameters


def make_optimizer(
    name: str,
    parameters: Iterable[nn.Parameter],
    lr: float,
    weight_decay: float = 0.0,
    momentum: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> torch.optim.Optimizer:
    """Return an optimiser; `momentum` None means 0.9 for sgd and a plugin's, and torch's default for the others."""
    if (own := plugin_optimizer(name)) is not None:
        return _made_by_plugin(
            construct(own, options or {}, f"optimizer {name}"),
            list(parameters),
            (lr, weight_decay, 0.9 if momentum is None else momentum),
        )
    cls = optimizer_class(name)
    accepted = inspect.signature(cls).parameters
    if momentum is None and name == "sgd":
        momentum = 0.9
    given = values_of(construct(options_class(name), options or {}))
    arguments: dict[str, Any] = {"lr": lr, **{key: given[key.replace("-", "_")] for key in options or {}}}
    for key, value, absent in (("weight_decay", weight_decay, 0.0), ("momentum", momentum, None)):
        if key in accepted:
            # Some optimisers decay by default; what the user sees as 0 must be 0.
            arguments |= {} if value is None else {key: value}
        elif value != absent:
            setting = key.replace("_", " ")
            raise ConfigError(f"optimiser {name} has no {setting} setting: leave it out, or choose another")
    if "fused" in accepted:
        # One kernel over all tensors of the model: 1.5 to 5 times faster than one call a tensor, on the CPU too.
        arguments["fused"] = True
    _keep_compiler_out()
    try:
        optimizer = cls(parameters, **arguments)
    except ValueError as error:
        raise ConfigError(f"optimiser {name} cannot train this network: {error}") from None
    _step_plainly(optimizer)
    return optimizer


@functools.cache
def _keep_compiler_out() -> None:
    """Let optimisers be made, saved and loaded without torch's compiler, whose import takes longer than torch's own.

    Torch shields these methods from being compiled, and imports the compiler for that when they are first called. They
    are looked up where torch keeps the shielded form, so that they serve as they are; nothing here compiles a step.
    """
    shield = torch._compile._disable_dynamo(lambda: None)
    for method in vars(torch.optim.Optimizer).values():
        if getattr(method, "__code__", None) is shield.__code__:
            setattr(method.__wrapped__, "__dynamo_disable", method.__wrapped__)


def _step_plainly(optimizer: torch.optim.Optimizer) -> None:
    """Have an optimiser take torch's own step without what surrounds it: a break for the compiler, and a profiler's."""
    plain = inspect.unwrap(type(optimizer).step)
    kinds = {(each.device, each.dtype) for group in optimizer.param_groups for each in group["params"]}
    direct = type(optimizer) is torch.optim.SGD and len(optimizer.param_groups) == 1 and len(kinds) == 1

    def step(self: torch.optim.Optimizer, closure: None = None) -> Any:
        with torch.no_grad():
            if direct and closure is None and stepped_at_once(self):
                return None
            return plain(self, closure)

    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]


def stepped_at_once(optimizer: torch.optim.Optimizer) -> bool:
    """Take torch's fused step of SGD over tensors of one kind, if nothing has to be made ready; return whether it was.

    Torch sorts tensors by device and kind before each step, which takes longer than to step over a small model's.
    """
    (group,) = optimizer.param_groups
    parameters = [each for each in group["params"] if each.grad is not None]
    gradients = [each.grad for each in parameters]
    buffers = [optimizer.state[each].get("momentum_buffer") for each in parameters] if group["momentum"] else []
    # The first step makes the buffers; float16's has a scale to undo.
    if not group["fused"] or not parameters or any(each is None for each in buffers):
        return False
    scaled = getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None
    if scaled or any(each.is_sparse for each in gradients):
        return False
    names = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
    torch._fused_sgd_(parameters, gradients, buffers, **{name: group[name] for name in names}, is_first_step=False)
    return True


def _made_by_plugin(
    optimizer: Optimizer, parameters: list[nn.Parameter], rates: tuple[float, float, float]
) -> torch.optim.Optimizer:
    with attributed(load_plugins().registry, "optimizer", optimizer.name):
        made = optimizer.make(parameters, *rates)
        if not isinstance(made, torch.optim.Optimizer):
            raise PluginError(
                f"optimizer {optimizer.name}: make must return a torch.optim.Optimizer, not {type(made).__name__}"
            )
        return made
