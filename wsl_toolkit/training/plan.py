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
from wsl_toolkit.training.linear import turned_forward

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


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
    chunk: int = 0
    """How many examples are gathered at once, a multiple of the batch size; 0: what their inputs find good."""
    source: str = attrs.field(default="", eq=False, repr=False)
    """Where threads, gathering ahead and chunk come from: given, recorded, kept, measured, or short: not measured."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that bits may depend on, to be saved with the run."""
        return attrs.asdict(self, filter=lambda field, _: field.name != "source")

    def choice(self) -> dict[str, Any]:
        """Return what is measured."""
        return {"threads": self.threads, "prefetch": self.prefetch, "chunk": self.chunk}

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
        if not self.compile and torch.device(self.device).type == "cpu":
            forward = turned_forward(model) or forward
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


def base_plan(
    model: nn.Module,
    inputs: Tensor | Inputs,
    device: torch.device | str = "cpu",
    *,
    autocast: bool = False,
    compile: bool = False,
) -> ExecutionPlan:
    """Return what a network and a device decide of a plan; threads and chunks are chosen by `training.calibration`."""
    device = torch.device(device)
    images = len(as_inputs(inputs).shape) == 3 and any(isinstance(m, nn.Conv2d) for m in model.modules())
    return ExecutionPlan(
        device=str(device),
        channels_last=images,
        autocast=autocast,
        compile=compile,
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
