"""Sheets of .xlsx workbooks as tables: values as they are stored, formulas as the numbers that were last computed."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.data.formats.size_bounds import Budget
from wsl_toolkit.data.table_columns import MISSING, row_number
from wsl_toolkit.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa


def read_sheet(path: Path, sheet: str | None = None) -> tuple[list[str], list[list[Any]]]:
    """Return the header of a sheet, the first one unless named, and its rows; blank ones above are left out."""
    rows = [list(row) for row in _cells(path, sheet)]
    start = next((place for place, row in enumerate(rows) if not is_blank(row)), len(rows))
    if start == len(rows):
        raise DataError("the sheet is empty")
    header = ["" if cell is None else str(cell) for cell in rows[start]]
    while header and not header[-1].strip():
        header.pop()
    wrong = [
        place for place, row in enumerate(rows[start + 1 :]) if any(cell is not None for cell in row[len(header) :])
    ]
    if wrong:
        raise DataError(f"{row_number(wrong[0])} has a value in a column without a name ({len(wrong):,} rows have)")
    width = len(header)
    return header, [(row + [None] * width)[:width] for row in rows[start + 1 :]]


def _cells(path: Path, sheet: str | None) -> Sequence[tuple[Any, ...]]:
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise DataError("an .xlsx file needs openpyxl: pip install 'wsl-toolkit[xlsx]', or save it as CSV") from None
    with zipfile.ZipFile(path) as archive:
        Budget.of(path).take(sum(info.file_size for info in archive.infolist()), "the workbook")
    book = load_workbook(path, read_only=True, data_only=True)
    try:
        if sheet is not None and sheet not in book.sheetnames:
            known = ", ".join(map(repr, book.sheetnames))
            raise DataError(f"there is no sheet {sheet!r}.{did_you_mean(sheet, book.sheetnames)} Sheets: {known}")
        chosen = book.worksheets[0] if sheet is None else book[sheet]
        return list(chosen.iter_rows(values_only=True))
    finally:
        book.close()


def is_blank(row: Sequence[Any]) -> bool:
    """Return whether nothing is in a row."""
    return all(cell is None or (isinstance(cell, str) and not cell.strip()) for cell in row)


def column_of(values: Sequence[Any], *, text: bool) -> pa.Array:
    """Return a column as a CSV file would give it: as text where asked, as numbers if all are, else as text."""
    import datetime

    import pyarrow as pa

    known = [value for value in values if value is not None and str(value).strip() not in MISSING]
    if not text and known and all(isinstance(value, datetime.date) for value in known):
        return pa.array([value if isinstance(value, datetime.date) else None for value in values])
    if not text and all(_is_number(value) for value in known):
        return pa.array([None if str(v).strip() in (*MISSING, "None") else float(v) for v in values], pa.float64())
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, int | float)


def _text(value: Any) -> str:
    """Return a value as people would have written it: whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
