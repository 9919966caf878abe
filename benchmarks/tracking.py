"""What tracking costs: inside the epoch loop, and to begin and end a run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Row, Section, spread
from benchmarks.problems import Synthetic, estimator, trainer
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.evaluation import LogitEvaluation
from wsl_toolkit.training.formulas import accuracy, covering_rate
from wsl_toolkit.training.trainer import Trainer


def sections(quick: bool) -> list[Section]:
    """Train with and without tracking, an epoch of each in turn."""
    n, epochs, rounds = (6_000, 20, 2) if quick else (60_000, 50, 3)
    problem = Synthetic.draw(n, (784,), 10)
    ratios, begins, ends = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds + 1):
            with_tracking, without = (_trainer(problem) for _ in range(2))
            start = time.perf_counter()
            record, finish = _begin(Path(folder))
            began = time.perf_counter() - start
            on, off = 0.0, 0.0
            for _ in range(epochs):
                off += _timed(without, lambda record: None)
                on += _timed(with_tracking, record)
            start = time.perf_counter()
            finish()
            if turn:  # the first one also migrates a fresh database
                ratios.append(on / off)
                begins.append(began)
                ends.append(time.perf_counter() - start)
    rows = (
        Row.of("epochs with tracking / without", spread(ratios), at_most=1.03),
        Row.of("beginning a run", spread(begins), unit="s"),
        Row.of("ending a run", spread(ends), unit="s"),
    )
    note = (
        f"{epochs} epochs of a linear model on {n:,} examples, each evaluated; an epoch of either in turn. Sending "
        "batches of metrics to the embedded database is part of the loop; logging the network at the end is not shown."
    )
    return [Section(title="Tracking", note=note, rows=rows)]


def _trainer(problem: Synthetic) -> Trainer:
    labels = problem.candidates.mask().int().argmax(1)
    mask = problem.candidates.mask()[:6000]
    evaluate = LogitEvaluation(
        inputs={"test": problem.x[:10_000], "validation": problem.x[:6_000]},
        score=lambda logits, risk: {
            "test/accuracy": accuracy(logits["test"], labels[:10_000]),
            "validation/covering_rate": covering_rate(logits["validation"], mask),
        },
    )
    made = trainer(problem, "linear", estimator("ppl"))
    made.evaluate = evaluate
    return made


def _timed(ours: Trainer, record: Callable[[EpochRecord], None]) -> float:
    start = time.perf_counter()
    record(next(ours.epochs(ours.epoch + 1)))
    return time.perf_counter() - start


def _begin(home: Path) -> tuple[Callable[[EpochRecord], None], Callable[[], None]]:
    """Begin a tracked run as a real one does; return what records an epoch and what ends the run."""
    from wsl_toolkit.runs.folder import FINISHED, RunFolder
    from wsl_toolkit.runs.tracking.store import Tracker, default_uri
    from wsl_toolkit.runs.tracking.tracked_run import TrackedRun

    tracker = Tracker(default_uri(home), "wsl-benchmark", home)
    folder = RunFolder.new(home)
    folder.enter()
    folder.note(name="benchmark", params={"lr": "0.001"}, tags={}, started=int(time.time() * 1000))
    tracked = TrackedRun(tracker, folder)
    tracked.begin(offline_allowed=False)
    return lambda record: tracked.log_epoch(folder.append(record)), lambda: tracked.finish(FINISHED)
