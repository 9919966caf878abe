"""A study's progress: one bar on a terminal, a line now and then elsewhere; always on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
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

if TYPE_CHECKING:
    from wsl_toolkit.studies.cells import CellState

LINE_SECONDS = 10.0


def _brief(state: CellState) -> str:
    from wsl_toolkit.studies.tracking import summary_metrics

    found = summary_metrics(state.finished)
    if "test/accuracy_mean" not in found:
        return f"risk {found['train/risk_mean']:.4f}" if found else "all trials diverged"
    error = f" ± {found['test/accuracy_stderr']:.4f}" if "test/accuracy_stderr" in found else ""
    return f"test accuracy {found['test/accuracy_mean']:.4f}{error}"


class SilentStudy:
    """Shows notes only."""

    def features(self, done: int, of: int) -> None:
        """Say nothing."""

    def begin(self, done: int, total: int) -> None:
        """Say nothing."""

    def advance(self, epochs: int) -> None:
        """Say nothing."""

    def job(self, done: int, total: int) -> None:
        """Say nothing."""

    def cell(self, state: CellState, done: int, total: int) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Print a note."""
        click.echo(f"note: {text}", err=True)


class StudyLines(SilentStudy):
    """A line for each complete cell, and one every few seconds."""

    def __init__(self) -> None:
        self.said = time.monotonic()

    def features(self, done: int, of: int) -> None:
        """Print now and then."""
        if done == of or time.monotonic() - self.said > LINE_SECONDS:
            self.said = time.monotonic()
            click.echo(f"features of {done:,}/{of:,} examples", err=True)

    def begin(self, done: int, total: int) -> None:
        """Say where the study stands."""
        self.said = time.monotonic()
        click.echo(f"{done} of {total} runs are done already" if done else f"{total} runs to do", err=True)

    def job(self, done: int, total: int) -> None:
        """Print now and then."""
        if time.monotonic() - self.said > LINE_SECONDS:
            self.said = time.monotonic()
            click.echo(f"{done}/{total} runs", err=True)

    def cell(self, state: CellState, done: int, total: int) -> None:
        """Print a cell's outcome."""
        click.echo(f"[{done}/{total}] {state.cell.label}: {_brief(state)}", err=True)


class StudyBars(SilentStudy):
    """One bar over all runs; complete cells are printed above it."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.epochs = 0
        self.embedding: TaskID | None = None

    def features(self, done: int, of: int) -> None:
        """Move the bar of a dataset's features; the next dataset has another."""
        if self.embedding is None:
            self.embedding = self.bars.add_task("features", total=of, epochs="")
        self.bars.update(self.embedding, completed=done)
        if done == of:
            self.embedding = None

    def begin(self, done: int, total: int) -> None:
        """Add the bar."""
        self.task = self.bars.add_task("runs", total=total, completed=done, epochs="")

    def advance(self, epochs: int) -> None:
        """Count epochs, which move while a long group of runs is under way."""
        self.epochs += epochs
        self.bars.update(self.task, epochs=f"{self.epochs} epochs")

    def job(self, done: int, total: int) -> None:
        """Move the bar."""
        self.bars.update(self.task, completed=done, total=total)

    def cell(self, state: CellState, done: int, total: int) -> None:
        """Print a cell's outcome."""
        self.bars.console.print(f"\\[{done}/{total}] {escape(state.cell.label)}: {_brief(state)}")

    def note(self, text: str) -> None:
        """Print a note above the bar."""
        self.bars.console.print(f"note: {escape(text)}")


@contextmanager
def study_progress(*, quiet: bool) -> Iterator[SilentStudy]:
    """Return the listener that fits: a bar on a terminal, lines in a pipe, nothing if asked."""
    out = console(stderr=True)
    if quiet:
        yield SilentStudy()
    elif out.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[epochs]}"),
        )
        with Progress(*columns, console=out) as bars:
            yield StudyBars(bars)
    else:
        yield StudyLines()
