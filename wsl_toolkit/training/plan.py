"""How training runs on a machine: device, threads, layout, precision; saved with a run, because bits depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.data.inputs import Inputs, as_inputs
from wsl_toolkit.training.devices import deterministic, flushing

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}

THREADS_PAY_FROM = 1e8
"""Floating-point operations in a training step from which a second thread earns more than it costs to wake."""


@attrs.frozen(kw_only=True)
class ExecutionPlan:
    """The same plan gives the same bits; another plan the same numbers to float tolerance."""

    device: str = "cpu"
    threads: int | None = None
    """Threads of a training step; None leaves torch's setting alone."""
    channels_last: bool = False
    """Images as [H, W, C] in memory, which convolution kernels prefer."""
    autocast: bool = False
    """The forward pass in half precision; losses and state stay float32."""
    half: str = "bfloat16"
    """Which half precision; float16 has small numbers scaled up before they are differentiated."""
    compile: bool = False
    """torch.compile the network; pays only in long runs of large networks."""
    deterministic: bool = False
    """Use no kernel whose sums depend on timing."""
    prefetch: bool = False
    """A second thread gathers the next examples while these are trained on; no bit depends on it."""
    flush_denormals: bool = False
    """Numbers below 1.2e-38 count as 0: processors take many times as long over them."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, to be saved with the run."""
        return attrs.asdict(self)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Use this plan's threads and kinds of kernels and numbers inside, and the former ones again after."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads or before)
        try:
            with deterministic(self.deterministic), flushing(self.flush_denormals):
                yield
        finally:
            torch.set_num_threads(before)

    def prepare(self, model: nn.Module) -> Callable[[Tensor], Any]:
        """Return the forward pass of a model under this plan; the model itself stays the owner of its weights."""
        if self.channels_last:
            model.to(memory_format=torch.channels_last)
        forward: Callable[[Tensor], Any] = torch.compile(model) if self.compile else model
        return _in_half(forward, torch.device(self.device).type, HALVES[self.half]) if self.autocast else forward

    def scaler(self) -> torch.amp.GradScaler | None:
        """Return what scales losses so that float16's gradients do not vanish; None where nothing needs it."""
        return (
            torch.amp.GradScaler(torch.device(self.device).type) if self.autocast and self.half == "float16" else None
        )


def _in_half(forward: Callable[[Tensor], Any], device_type: str, dtype: torch.dtype) -> Callable[[Tensor], Any]:
    def run(inputs: Tensor) -> Any:
        with torch.autocast(device_type, dtype=dtype):
            output = forward(inputs)
        if isinstance(output, tuple):
            logits, extras = output
            return logits.float(), {name: _lifted(value) for name, value in extras.items()}
        return output.float()

    return run


def _lifted(value: Tensor) -> Tensor:
    """Return floating-point numbers in float32, and others, such as places in a batch, as they are."""
    return value.float() if value.is_floating_point() else value


def choose_plan(
    model: nn.Module,
    inputs: Tensor | Inputs,
    device: torch.device | str = "cpu",
    *,
    batch_size: int = 256,
    models: int = 1,
    autocast: bool = False,
    compile: bool = False,
) -> ExecutionPlan:
    """Return a good plan for training `models` such models; precision and compilation are the caller's to ask for."""
    device = torch.device(device)
    images = len(as_inputs(inputs).shape) == 3 and any(isinstance(m, nn.Conv2d) for m in model.modules())
    threads = None
    if device.type == "cpu":
        # Never more than torch's present setting: whoever shares the machine among processes has lowered it.
        work = 3 * models * batch_size * forward_operations(model, inputs)
        threads = torch.get_num_threads() if work >= THREADS_PAY_FROM else 1
    return ExecutionPlan(
        device=str(device),
        threads=threads,
        channels_last=images,
        autocast=autocast,
        compile=compile,
        prefetch=threads == 1 < torch.get_num_threads(),
        flush_denormals=device.type == "cpu",
    )


def forward_operations(model: nn.Module, inputs: Tensor | Inputs) -> float:
    """Return the floating-point operations of one example's forward pass in linear and convolutional layers."""
    counts: list[float] = []

    def count(layer: nn.Module, _: Any, output: Any) -> None:
        weight = layer.weight
        if isinstance(output, Tensor) and isinstance(weight, Tensor) and weight.ndim > 1:
            # Every output number of a layer is a product with one of the weight's leading rows.
            counts.append(2 * output.numel() * weight.numel() / weight.shape[0])

    layers = [m for m in model.modules() if getattr(m, "weight", None) is not None]
    handles = [layer.register_forward_hook(count) for layer in layers]
    example = as_inputs(inputs).gather(torch.zeros(1, dtype=torch.int64)).float()
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            model(example.to(next(model.parameters()).device))
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return sum(counts)
