"""What two habits of processors cost, and what is saved: short rows, and numbers too small to count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from benchmarks.harness import Row, Section, measure, ratio
from benchmarks.problems import Synthetic
from benchmarks.stacked import grid_members
from wsl_toolkit import losses
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.stacking import Stack
from wsl_toolkit.training.trainer import Trainer


def sections(quick: bool) -> list[Section]:
    """Compare softmaxes, then stacks that flush and do not."""
    return [softmaxes(2 if quick else 9), small_numbers(6_000 if quick else 30_000, 2 if quick else 5)]


def softmaxes(rounds: int) -> Section:
    """Time log-softmax with its gradient, torch's along rows and ours."""
    rows, details = [], {}
    for models, classes in ((1, 10), (36, 3), (36, 10), (36, 20)):
        logits = torch.randn(256 * models, classes, generator=torch.Generator().manual_seed(0)).requires_grad_()
        cases = {"torch": _forth_and_back(_torchs, logits), "ours": _forth_and_back(losses.log_softmax, logits)}
        with ExecutionPlan(threads=1).in_force():
            seconds = measure(cases, rounds)
        what = f"log-softmax of {256 * models:,} × {classes}, torch's / ours"
        rows.append(Row.of(what, ratio(seconds, "torch", "ours")))
        details[what] = seconds
    note = (
        "With its gradient, one thread. Where a row has fewer numbers than a vector register, ours goes along the "
        "other dimension; from 16 classes on it is torch's own."
    )
    return Section(title="Kernels: short rows", note=note, rows=tuple(rows), details=details)


def _torchs(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, dim=-1)


def _forth_and_back(function: Callable[[Tensor], Tensor], logits: Tensor) -> Callable[[], Any]:
    weights = torch.ones_like(logits)

    def run() -> None:
        for _ in range(20):
            torch.autograd.grad(function(logits), logits, weights)

    return run


def small_numbers(n: int, rounds: int) -> Section:
    """Time epochs of a grid of learning rates with and without numbers below 1.2e-38."""
    problem = Synthetic.draw(n, (784,), 10)
    rows, details = [], {}
    for method in ("ppl", "cc"):
        kept, flushed = (
            Stack(
                [
                    _with_plan(member, flush_denormals=flush)
                    for member in grid_members(problem, "linear", method, seed=0)
                ]
            )
            for flush in (False, True)
        )
        seconds = measure({"kept": kept.train_epoch, "flushed": flushed.train_epoch}, rounds)
        rows.append(Row.of(f"36 linear models, {method}: kept / flushed", ratio(seconds, "kept", "flushed")))
        details[method] = seconds
    note = "An epoch of the stack; the larger learning rates drive probabilities below what a normal number can hold."
    return Section(title="Kernels: small numbers", note=note, rows=tuple(rows), details={"examples": n, **details})


def _with_plan(member: Trainer, **changes: Any) -> Trainer:
    member.plan = attrs.evolve(member.plan, **changes)
    return member
