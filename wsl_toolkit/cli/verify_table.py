"""The estimator × generator matrix as people read it in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from wsl_toolkit.settings import Kind
from wsl_toolkit.theory.verification import TRUE_CONFIDENCE, Cell, Column, Matrix, Row, Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 100
"""Sentences are wrapped at this width even where a terminal is wider."""

LABEL_WIDTH = 20
COLUMN_WIDTH = 10

SHORT_KIND = {
    Kind.UNBIASED: "unbiased",
    Kind.CONSISTENT: "consistent",
    Kind.UPPER_BOUND: "bound",
    Kind.HEURISTIC: "heuristic",
}

LEGEND = (
    ("✓", "unbiased: the bias is 0 up to rounding at every one of these instances"),
    ("+0.31", "biased: the largest bias found"),
    ("≥", "an upper bound of the risk at all of them; <: below the risk somewhere, by so much"),
    ("◆", "bias n/a, but the minimiser of the expected loss has the right class at all of them; ◇: at so many"),
    ("( )", "not promised: the generator is outside what the estimator declares"),
    ("✗", "promised, and not so: a defect"),
    ("σ", "standard deviation of the loss of one example given x"),
)


def symbol(cell: Cell, instances: int) -> str:
    """Return a cell's verdict in a few characters, without its footnote."""
    bias = "" if cell.bias is None else f"{cell.bias:+.2f}" if abs(cell.bias) >= 0.095 else f"{cell.bias:+.1g}"
    text = {
        Verdict.UNBIASED: "✓",
        Verdict.BIASED: bias,
        Verdict.UPPER_BOUND: "≥",
        Verdict.NO_BOUND: f"< {bias}",
        Verdict.CONSISTENT: "◆",
        Verdict.INCONSISTENT: f"◇ {cell.right}/{instances}",
        Verdict.NOT_APPLICABLE: "n/a",
        Verdict.FAILED: "failed",
    }[cell.verdict]
    if cell.broken:
        return text if cell.verdict is Verdict.FAILED else f"✗ {text}"
    marked = cell.verdict in (Verdict.UNBIASED, Verdict.UPPER_BOUND, Verdict.CONSISTENT)
    return f"({text})" if marked and not cell.promised else text


def show(matrix: Matrix, out: Console) -> None:
    """Print the matrix in as many pieces as the width asks for, then notes and legend."""
    folded = nowhere_applicable(matrix)
    hidden = {name for names in folded.values() for name in names}
    rows = [row for row in matrix.rows if row.name not in hidden]
    notes = footnotes(matrix, rows)
    out.print(f"[bold]estimators × generators, K = {matrix.num_classes}[/]")
    out.print(Text(enumerated(matrix), style="dim"), width=min(out.width, WIDTH))
    out.print()
    for columns in _pieces(matrix.columns, out) if rows else ():
        out.print(_table(matrix, rows, columns, notes))
        out.print()
    for reason, names in folded.items():
        told = f"not shown, because each {reason}: {', '.join(names)}"
        out.print(Text(told), width=min(out.width, WIDTH))
    for message, number in notes.items():
        out.print(f"\\[{number}] {escape(message)}")
    for column in matrix.columns:
        if column.identifies is False:
            out.print(
                f"{column.name}: its sets leave p(y|x) open here; ◆ means that a right minimiser is among several"
            )
    if notes or any(column.identifies is False for column in matrix.columns):
        out.print()
    grid = Table.grid(padding=(0, 2))
    for sign, meaning in LEGEND:
        grid.add_row(Text(sign, style="bold"), Text(meaning, style="dim"))
    out.print(grid)
    out.print(_summary(matrix))


def enumerated(matrix: Matrix) -> str:
    """Say exactly what was summed over, and at which points."""
    sets, n = 2**matrix.num_classes - 2, matrix.instances
    return (
        f"Each cell is an exact sum over all {sets:,} candidate sets (neither empty nor full), at {n} instances: {n} "
        f"random p(y|x), each with random logits, and confidences from the true p(y|x). What it says holds at these "
        f"{n} points; other points were not tried."
    )


def nowhere_applicable(matrix: Matrix) -> dict[str, list[str]]:
    """Return the estimators that could be judged under no generator, by the reason that they share."""
    found: dict[str, list[str]] = {}
    for row in matrix.rows:
        cells = [matrix.cells[row.name, column.name] for column in matrix.columns]
        reasons = {cell.message.removeprefix(f"{row.name} ") for cell in cells}
        if len(reasons) == 1 and all(cell.verdict is Verdict.NOT_APPLICABLE for cell in cells):
            reason = reasons.pop()
            if cells[0].message.startswith(f"{row.name} "):  # it is about the estimator, not about the generators
                found.setdefault(reason, []).append(row.name)
    return found


def footnotes(matrix: Matrix, rows: Sequence[Row]) -> dict[str, int]:
    """Number the messages of cells that could not be judged; the same message gets the same number."""
    notes: dict[str, int] = {}
    for row in rows:
        for column in matrix.columns:
            message = matrix.cells[row.name, column.name].message
            if message:
                notes.setdefault(message, len(notes) + 1)
    return notes


def _pieces(columns: Sequence[Column], out: Console) -> Iterator[Sequence[Column]]:
    """Split the columns into pieces of like width that fit the width: 80 columns where nothing says otherwise."""
    fit = max(1, (out.width - LABEL_WIDTH) // COLUMN_WIDTH)
    width = math.ceil(len(columns) / math.ceil(len(columns) / fit))
    for start in range(0, len(columns), width):
        yield columns[start : start + width]


def _table(matrix: Matrix, rows: Sequence[Row], columns: Sequence[Column], notes: dict[str, int]) -> Table:
    table = Table(
        width=LABEL_WIDTH + COLUMN_WIDTH * len(columns),
        padding=(0, 1, 0, 0),
        pad_edge=False,
        box=None,
    )
    table.add_column("estimator", width=LABEL_WIDTH - 1, header_style="bold", vertical="bottom")
    for column in columns:
        heading = Text(column.name.replace("-", "-\n"), style="bold")
        heading.append(f"\n{column.setting}", style="not bold dim")
        table.add_column(heading, justify="right", width=COLUMN_WIDTH - 1, no_wrap=True)
    for row in rows:
        cells: list[RenderableType] = [_cell(matrix, matrix.cells[row.name, c.name], notes) for c in columns]
        table.add_row(_label(row), *cells)
    return table


def _label(row: Row) -> Text:
    label = Text(row.name, style="bold italic" if row.name == TRUE_CONFIDENCE else "bold")
    label.append(f"\n  {SHORT_KIND[row.kind]}, {row.assumption}", style="not bold not italic dim")
    return label


def _cell(matrix: Matrix, cell: Cell, notes: dict[str, int]) -> Text:
    style = "bold red" if cell.broken else "green" if cell.promised else "cyan" if "(" in symbol(cell, 0) else ""
    style = "dim" if cell.verdict is Verdict.NOT_APPLICABLE else style
    text = Text(symbol(cell, matrix.instances), style=style)
    if cell.message:
        text.append(f"[{notes[cell.message]}]", style="dim")
    if cell.standard_deviation is not None:
        text.append(f"\nσ {cell.standard_deviation:.2f}", style="not bold dim")
    return text


def _summary(matrix: Matrix) -> Text:
    promised = [cell for cell in matrix.cells.values() if cell.promised]
    broken = matrix.broken
    if broken:
        pairs = ", ".join(f"{cell.estimator} under {cell.generator}" for cell in broken[:5])
        return Text(
            f"\n{len(broken)} of {len(matrix.cells)} pairs are not as they should be: {pairs}", style="bold red"
        )
    return Text(f"\nAll promises hold: {len(promised)} of {len(matrix.cells)} pairs are promised something.")
