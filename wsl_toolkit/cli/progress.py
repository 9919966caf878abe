"""Live progress on a terminal, plain lines elsewhere; always on standard error, so that output can be piped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from wsl_toolkit.cli.console import console
from wsl_toolkit.runs.result import RunResult
from wsl_toolkit.training.engine import EpochRecord

if TYPE_CHECKING:
    from wsl_toolkit.own_data.learning import Standing

LINE_SECONDS = 5.0


def _brief(record: EpochRecord) -> str:
    parts = [f"risk {record.metrics['train/risk']:.4f}"]
    if "test/accuracy" in record.metrics:
        parts.append(f"test accuracy {record.metrics['test/accuracy']:.4f}")
    return "  ".join(parts)


class Silent:
    """Shows notes, and the result if it is told how."""

    def __init__(self, show: Callable[[RunResult], None] = lambda result: None) -> None:
        self.show = show

    def features(self, done: int, of: int) -> None:
        """Say nothing."""

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """Say nothing."""

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """Say nothing."""

    def judged(self, standing: Standing) -> None:
        """Say nothing."""

    def result(self, result: RunResult) -> None:
        """Show the result, if that is wanted."""
        self.show(result)

    def note(self, text: str) -> None:
        """Print a note."""
        click.echo(f"note: {text}", err=True)


def _so_far(standing: Standing) -> str:
    more = f"; {standing.left} more to try" if standing.left else ""
    return (
        f"so far {standing.model}: log loss of held-out sets {standing.loss:.4f}, "
        f"covering rate {standing.covering_rate:.4f}{more}"
    )


class Lines(Silent):
    """A line every few seconds, and one at the end of each trial."""

    def __init__(self, show: Callable[[RunResult], None] = lambda result: None) -> None:
        super().__init__(show)
        self.labels: dict[int, str] = {}
        self.epochs = 0
        self.said = time.monotonic()

    def features(self, done: int, of: int) -> None:
        """Print now and then."""
        if done == of or time.monotonic() - self.said > LINE_SECONDS:
            self.said = time.monotonic()
            click.echo(f"features of {done:,}/{of:,} examples", err=True)

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """Announce a trial."""
        self.labels[number] = f"trial {number}/{of} (seed {seed})"
        self.epochs = epochs
        self.said = time.monotonic()

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """Print now and then."""
        if record.epoch == self.epochs or time.monotonic() - self.said > LINE_SECONDS:
            self.said = time.monotonic()
            click.echo(f"{self.labels[trial]}  epoch {record.epoch}/{self.epochs}  {_brief(record)}", err=True)

    def judged(self, standing: Standing) -> None:
        """Print it."""
        click.echo(_so_far(standing), err=True)


class Bars(Silent):
    """One bar for each trial."""

    def __init__(self, bars: Progress, show: Callable[[RunResult], None] = lambda result: None) -> None:
        super().__init__(show)
        self.bars = bars
        self.tasks: dict[int, TaskID] = {}
        self.embedding: TaskID | None = None

    def features(self, done: int, of: int) -> None:
        """Move the bar of the features."""
        if self.embedding is None:
            self.embedding = self.bars.add_task("features", total=of, brief="")
        self.bars.update(self.embedding, completed=done)

    def trial(self, number: int, of: int, seed: int, epochs: int) -> None:
        """Add a bar."""
        self.tasks[number] = self.bars.add_task(f"trial {number}/{of} (seed {seed})", total=epochs, brief="")

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        """Move the trial's bar."""
        self.bars.update(self.tasks[trial], completed=record.epoch, brief=_brief(record))

    def judged(self, standing: Standing) -> None:
        """Print it above the bars."""
        self.bars.console.print(_so_far(standing), markup=False)

    def result(self, result: RunResult) -> None:
        """Show the result below the bars, which have done their work."""
        self.bars.stop()
        super().result(result)

    def note(self, text: str) -> None:
        """Print a note above the bars."""
        self.bars.console.print(f"note: {escape(text)}")


@contextmanager
def progress(*, quiet: bool, show: Callable[[RunResult], None] = lambda result: None) -> Iterator[Silent]:
    """Return the listener that fits: bars on a terminal, lines in a pipe, nothing if asked; `show` shows the result."""
    out: Console = console(stderr=True)
    if quiet:
        yield Silent(show)
    elif out.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[brief]}"),
        )
        with Progress(*columns, console=out) as bars:
            yield Bars(bars, show)
    else:
        yield Lines(show)


@contextmanager
def steps(names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show which step of several is under way: a bar on a terminal, a line each elsewhere, on standard error."""
    out = console(stderr=True)
    if quiet:
        yield lambda name: None
        return
    if not out.is_terminal:
        yield lambda name: out.print(f"{names.index(name) + 1}/{len(names)} {name}", markup=False)
        return
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(names[0], total=len(names))
        yield lambda name: bar.update(task, description=name, completed=names.index(name), refresh=True)
