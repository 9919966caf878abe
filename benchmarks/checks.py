"""What the checks of the first batch, and the watch for losses that are not finite, cost a training."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Row, Section, measure, ratio
from benchmarks.problems import Synthetic, estimator, trainer
from wsl_toolkit.training.trainer import Trainer

NOTE = (
    "`ppl`, an epoch of batches of 256; processor time, which a busy machine disturbs least. *Bare*: neither the "
    "checks of the first batch nor the watch for losses that are not finite. *Ordinary*: an epoch after the first, in "
    "which nothing is left to check. *First*: the epoch whose first batch is checked; what that costs more is given in "
    "ordinary steps too."
)


class _Blind:
    """Stands in for the watch: sees nothing and remembers nothing."""

    def __init__(self) -> None:
        self.origins: dict[int, Any] = {}

    def see(self, *seen: Any) -> None:
        """Forget."""

    def look(self, losses: Any) -> None:
        """Look away."""


def sections(quick: bool) -> list[Section]:
    """Compare epochs with and without, for two networks."""
    return [
        compare(network, 3 if quick else rounds, n)
        for network, rounds, n in (("linear", 15, 30_000), ("mlp", 9, 10_000))
    ]


def compare(network: str, rounds: int, n: int) -> Section:
    """Time an epoch bare, ordinary and first, round by round."""
    problem = Synthetic.draw(n, (784,), 10)
    bare, ordinary, first = (trainer(problem, network, estimator("ppl")) for _ in range(3))
    bare._loop.watch = _Blind()  # type: ignore[assignment]
    cases = {
        "bare": epoch(bare, unchecked=False),
        "ordinary": epoch(ordinary, unchecked=False),
        "first": epoch(first, unchecked=True),
    }
    seconds = measure(cases, rounds, time.process_time)
    steps = -(-n // first.batch_size)
    extra = [(a - b) / (b / steps) for a, b in zip(seconds["first"], seconds["ordinary"], strict=True)]
    middle = sorted(extra)[len(extra) // 2]
    rows = (
        Row.of("ordinary / bare", ratio(seconds, "ordinary", "bare"), at_most=1.05),
        Row.of("first / bare", ratio(seconds, "first", "bare")),
        Row(what="the checks of the first batch", median=middle, unit="steps"),
    )
    details = {"examples": n, "steps": steps, "seconds": seconds}
    return Section(title=f"The checks: {network}", note=NOTE, rows=rows, details=details)


def epoch(ours: Trainer, *, unchecked: bool) -> Callable[[], Any]:
    """Return a function that trains an epoch, its first batch checked or not."""

    def run() -> None:
        ours._loop.unchecked = unchecked
        next(ours.epochs(ours.epoch + 1))

    return run
