"""The training loop against a bare hand-written one, and against the limit: forward, backward and step alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness import measure, ratio
from benchmarks.problems import BATCH, LR, MOMENTUM, WEIGHT_DECAY, Synthetic, backbone, estimator, trainer
from wsl_toolkit.engine import Trainer

SIZES = {"linear": (60_000, (784,)), "mlp": (60_000, (784,)), "resnet32": (1_024, (3, 32, 32))}
"""Examples and their shape: MNIST's for the dense networks; a few batches of CIFAR's for the slow one."""

TARGETS = {
    "linear": {"proden / bare": 0.85, "proden / limit": 1.8, "ppl / bare": 1.2},
    "mlp": {"proden / bare": 1.05, "ppl / bare": 1.35},
    "resnet32": {"proden / bare": 1.05, "ppl / bare": 1.35},
}


def limit_epoch(problem: Synthetic, model: nn.Module) -> None:
    """What no loop can avoid: forward, backward and step on batches that already lie one after another."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    model.train()
    weights = problem.candidates.mask().float()
    for start in range(0, len(problem.x), BATCH):
        loss = functional.cross_entropy(model(problem.x[start : start + BATCH]), weights[start : start + BATCH])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def bare_loop(problem: Synthetic, model: nn.Module) -> Callable[[], None]:
    """A careful person's loop for progressive identification: tensors in memory, no framework."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    x, candidates = problem.x, problem.candidates.mask()
    confidence = candidates / candidates.sum(1, keepdim=True)

    def epoch() -> None:
        model.train()
        order = torch.randperm(len(x))
        for start in range(0, len(x), BATCH):
            index = order[start : start + BATCH]
            logits = model(x[index])
            loss = -(confidence[index] * functional.log_softmax(logits, dim=1)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                p = functional.softmax(logits, dim=1) * candidates[index]
                confidence[index] = p / p.sum(1, keepdim=True)

    return epoch


def one_epoch(ours: Trainer) -> Callable[[], Any]:
    return lambda: next(ours.epochs(ours.epoch + 1))


def compare(network: str, rounds: int, scale: float = 1.0) -> dict[str, Any]:
    """Time an epoch of every loop, round by round, all with the threads that the plan chose."""
    n, shape = SIZES[network]
    problem = Synthetic.draw(max(BATCH, int(n * scale)), shape, 10)
    ours = {name: trainer(problem, network, estimator(name)) for name in ("proden", "ppl", "cc")}
    plan = ours["proden"].plan

    def with_plan(case: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> None:
            with plan.limit_threads():
                case()

        return run

    limit_model = backbone(network, problem)
    bare = bare_loop(problem, backbone(network, problem))
    seconds = measure(
        {
            "limit": with_plan(lambda: limit_epoch(problem, limit_model)),
            "bare": with_plan(bare),
            **{name: one_epoch(each) for name, each in ours.items()},
        },
        rounds,
    )
    pairs = [("bare", "limit"), *((name, "bare") for name in ours), ("proden", "limit")]
    return {
        "network": network,
        "examples": len(problem.x),
        "plan": plan.as_dict(),
        "seconds": seconds,
        "ratios": {f"{a} / {b}": ratio(seconds, a, b) for a, b in pairs},
        "targets": TARGETS[network],
    }
