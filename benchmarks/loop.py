"""The training loop against a bare hand-written one, and against the limit: forward, backward and step alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.harness import Row, Section, exponent, measure, ratio
from benchmarks.problems import BATCH, LR, MOMENTUM, WEIGHT_DECAY, Synthetic, backbone, estimator, trainer
from wsl_toolkit.losses import cross_entropy
from wsl_toolkit.training.devices import flushing
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.trainer import Trainer

SIZES = {"linear": (60_000, (784,)), "mlp": (60_000, (784,)), "resnet32": (1_024, (3, 32, 32))}
"""Examples and their shape: MNIST's for the dense networks; a few batches of CIFAR's for the slow one."""

TARGETS = {
    "linear": {"proden / limit": 1.3, "ppl / limit": 1.6, "proden / bare": 0.7},
    "mlp": {"proden / limit": 1.05},
    "resnet32": {"proden / limit": 1.03},
}
NOTE = (
    "One epoch, batch 256. *Arithmetic*: the matrix products of the forward and the backward pass alone, into memory "
    "that is there already. *Limit*: forward, backward and step on batches that already lie one after another, in our "
    "layout, with our softmax and fused optimiser. *Bare*: a careful hand-written loop for progressive identification, "
    "tensors in memory, `X[index]`, confidences from the same logits. *Peer*: the same with torch's `DataLoader`, as "
    "most published code has it. Each of these with one thread or all, whichever is faster; ours by its plan. "
    "`proden` does what the bare loop does; `ppl` has a second forward pass for its confidences; `cc` has none."
)


def sections(quick: bool) -> list[Section]:
    """Compare the loops for each network; then how an epoch grows."""
    plan = {"linear": (9, 1.0), "mlp": (5, 0.3), "resnet32": (5, 1.0)}
    if quick:
        plan = {"linear": (3, 0.2), "mlp": (2, 0.05), "resnet32": (2, 0.25)}
    return [*(compare(network, *how) for network, how in plan.items()), growth(quick)]


def compare(network: str, rounds: int, scale: float = 1.0) -> Section:
    """Time an epoch of every loop, round by round."""
    n, shape = SIZES[network]
    problem = Synthetic.draw(max(2 * BATCH, int(n * scale)), shape, 10)
    ours = {name: trainer(problem, network, estimator(name)) for name in ("proden", "ppl", "cc")}
    plan = ours["proden"].plan
    others = {
        "limit": limit(problem, backbone(network, problem), plan),
        "bare": bare_loop(problem, backbone(network, problem)),
        "peer": peer_loop(problem, backbone(network, problem)),
    }
    if network != "resnet32":
        others["arithmetic"] = arithmetic(problem, backbone(network, problem))
    threads = sorted({1, torch.get_num_threads()})
    cases = {f"{name}, {count}": with_threads(count, case) for name, case in others.items() for count in threads}
    seconds = measure({**cases, **{name: one_epoch(each) for name, each in ours.items()}}, rounds)
    best = {name: min((seconds.pop(f"{name}, {count}") for count in threads), key=statistics.median) for name in others}
    seconds |= best
    pairs = [("limit", "arithmetic")] if "arithmetic" in others else []
    pairs += [(name, "limit") for name in ("bare", "peer", *ours)]
    pairs += [(name, "bare") for name in ours]
    targets = TARGETS[network]
    rows = [Row.of(f"{a} / {b}", ratio(seconds, a, b), at_most=targets.get(f"{a} / {b}")) for a, b in pairs]
    return Section(
        title=f"The loop: {network}",
        note=NOTE,
        rows=tuple(rows),
        details={"examples": len(problem.x), "plan": plan.as_dict(), "seconds": seconds},
    )


def with_threads(count: int, case: Callable[[], Any]) -> Callable[[], Any]:
    """Return a case that runs with so many threads."""
    plan = ExecutionPlan(threads=count)

    def run() -> None:
        with plan.in_force():
            case()

    return run


def limit(problem: Synthetic, model: nn.Module, plan: ExecutionPlan) -> Callable[[], None]:
    """What no loop can avoid: forward, backward and step on batches that already lie one after another."""
    forward = plan.prepare(model)
    optimizer = make_optimizer("sgd", model.parameters(), LR, WEIGHT_DECAY, MOMENTUM)
    x = problem.x.contiguous(memory_format=torch.channels_last) if plan.channels_last else problem.x
    weights = problem.candidates.mask().float()

    def epoch() -> None:
        model.train()
        with flushing(plan.flush_denormals):
            for start in range(0, len(x), BATCH):
                logits = forward(x[start : start + BATCH])
                loss = (weights[start : start + BATCH] * cross_entropy(logits)).sum(1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    return epoch


def arithmetic(problem: Synthetic, model: nn.Module) -> Callable[[], None]:
    """The matrix products of a network's linear layers, forward and backward, into memory that is there already."""
    shapes = [layer.weight.shape for layer in model.modules() if isinstance(layer, nn.Linear)]
    weights = [torch.randn(wide, deep) for wide, deep in shapes]
    outputs = [torch.randn(BATCH, wide) for wide, _ in shapes]
    gradients = [torch.empty(wide, deep) for wide, deep in shapes]
    backwards = [torch.empty(BATCH, deep) for _, deep in shapes]

    def epoch() -> None:
        for start in range(0, len(problem.x) - BATCH + 1, BATCH):
            inputs = [problem.x[start : start + BATCH].flatten(1), *outputs[:-1]]
            for given, weight, output in zip(inputs, weights, outputs, strict=True):
                torch.mm(given, weight.t(), out=output)
            for place in reversed(range(len(shapes))):
                torch.mm(outputs[place].t(), inputs[place], out=gradients[place])
                if place:
                    torch.mm(outputs[place], weights[place], out=backwards[place])

    return epoch


def bare_loop(problem: Synthetic, model: nn.Module) -> Callable[[], None]:
    """A careful person's loop for progressive identification: tensors in memory, no framework."""
    step = _identification(problem, model)

    def epoch() -> None:
        model.train()
        for index in torch.randperm(len(problem.x)).split(BATCH):
            step(problem.x[index], index)

    return epoch


def peer_loop(problem: Synthetic, model: nn.Module) -> Callable[[], None]:
    """The same with torch's DataLoader over single examples, as most published code has it."""
    step = _identification(problem, model)
    pairs = TensorDataset(problem.x, torch.arange(len(problem.x)))
    loader = DataLoader(pairs, batch_size=BATCH, shuffle=True)

    def epoch() -> None:
        model.train()
        for inputs, index in loader:
            step(inputs, index)

    return epoch


def _identification(problem: Synthetic, model: nn.Module) -> Callable[[Tensor, Tensor], None]:
    """A step of progressive identification, with confidences kept for each example."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    candidates = problem.candidates.mask()
    confidence = candidates / candidates.sum(1, keepdim=True)

    def step(inputs: Tensor, index: Tensor) -> None:
        logits = model(inputs)
        loss = -(confidence[index] * functional.log_softmax(logits, dim=1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            p = functional.softmax(logits, dim=1) * candidates[index]
            confidence[index] = p / p.sum(1, keepdim=True)

    return step


def one_epoch(ours: Trainer) -> Callable[[], Any]:
    return lambda: next(ours.epochs(ours.epoch + 1))


def growth(quick: bool) -> Section:
    """How an epoch of `ppl` on a linear model grows with the examples and with the classes."""
    rounds = 2 if quick else 4
    by_n = {n: Synthetic.draw(n, (784,), 10) for n in ((4_000, 8_000, 16_000) if quick else (7_500, 15_000, 30_000))}
    by_k = {k: Synthetic.draw(4_096, (784,), k) for k in (10, 100, 1000)}
    rows, details = [], {}
    for name, problems in (("examples n", by_n), ("classes K, from 10 to 1000", by_k)):
        cases = {str(size): one_epoch(trainer(p, "linear", estimator("ppl"))) for size, p in problems.items()}
        seconds = measure(cases, rounds)
        slope = exponent({int(size): values for size, values in seconds.items()})
        rows.append(Row(what=f"epoch time ∝ ({name})^b", median=slope, unit="b"))
        details[name] = seconds
    note = "The exponent b of a power law through an epoch's times; 1 is linear, below 1 better than that."
    return Section(title="The loop: growth", note=note, rows=tuple(rows), details=details)
