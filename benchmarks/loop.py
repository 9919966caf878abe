"""The training loop against a bare hand-written one, and against the limit: forward, backward and step alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness import Row, Section, exponent, measure, ratio
from benchmarks.problems import BATCH, LR, MOMENTUM, WEIGHT_DECAY, Synthetic, backbone, estimator, trainer
from wsl_toolkit.training.trainer import Trainer

SIZES = {"linear": (60_000, (784,)), "mlp": (60_000, (784,)), "resnet32": (1_024, (3, 32, 32))}
"""Examples and their shape: MNIST's for the dense networks; a few batches of CIFAR's for the slow one."""

TARGETS = {
    "linear": {"proden / bare": 0.85, "proden / limit": 1.8, "ppl / bare": 1.2},
    "mlp": {"proden / bare": 1.05, "ppl / bare": 1.35},
    "resnet32": {"proden / bare": 1.05, "ppl / bare": 1.35},
}
NOTE = (
    "One epoch, batch 256, all loops with the threads that our plan chooses. *Limit*: forward, backward and SGD step "
    "on batches that already lie one after another. *Bare*: a careful hand-written loop for progressive "
    "identification, tensors in memory, `X[index]`, confidences from the same logits. `proden` does what the bare loop "
    "does; `ppl` has a second forward pass for its confidences; `cc` has none."
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

    def with_plan(case: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> None:
            with plan.in_force():
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
    pairs = [("bare", "limit"), ("proden", "limit"), ("proden", "bare"), ("ppl", "bare"), ("cc", "bare")]
    targets = TARGETS[network]
    rows = [Row.of(f"{a} / {b}", ratio(seconds, a, b), at_most=targets.get(f"{a} / {b}")) for a, b in pairs]
    return Section(
        title=f"The loop: {network}",
        note=NOTE,
        rows=tuple(rows),
        details={"examples": len(problem.x), "plan": plan.as_dict(), "seconds": seconds},
    )


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
