"""The rows of CSV, Parquet and spreadsheet files as a table; empty rows are left out, wrong ones named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from wsl_toolkit.data.formats import spreadsheets
from wsl_toolkit.data.formats.size_bounds import Budget
from wsl_toolkit.data.formats.table_layout import Layout, TableFile
from wsl_toolkit.data.formats.text_dialect import Dialect
from wsl_toolkit.data.table_columns import MISSING, row_number
from wsl_toolkit.errors import DataError, one_line

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER_BYTES = 8


def parquet_columns(path: Path) -> list[str]:
    """Return the column names of a Parquet file; each may be used once."""
    import pyarrow.parquet as pq

    names: list[str] = pq.read_schema(path).names
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"two columns are called {name!r}")
    return names


def read_parquet(path: Path, columns: Sequence[str]) -> pa.Table:
    """Read some columns of a Parquet file, whose rows may need far more memory than the file has bytes."""
    import pyarrow.parquet as pq

    rows = pq.read_metadata(path).num_rows
    Budget.of(path).take(rows * len(columns) * NUMBER_BYTES, f"{rows:,} rows of {len(columns)} columns")
    return pq.read_table(path, columns=list(columns))


def header_of(path: Path, dialect: Dialect) -> list[str]:
    """Return the column names of a text file; each may be used once."""
    header = _first_row(path, dialect)[1]
    if not header:
        raise DataError("the file is empty")
    return check_header(header)


def check_header(header: list[str]) -> list[str]:
    """Return column names, each of which there may be once."""
    for place, name in enumerate(header):
        if not name.strip():
            raise DataError(f"column {place + 1} has no name; if it is pandas' index, write the file with index=False")
        if header.count(name) > 1:
            raise DataError(f"two columns are called {name!r}")
    return header


def _first_row(path: Path, dialect: Dialect) -> tuple[int, list[str]]:
    """Return how many blank lines there are before the header, and the header."""
    import csv

    with path.open(encoding=dialect.encoding, newline="") as file:
        blank = 0
        for row in csv.reader(file, delimiter=dialect.delimiter, quotechar=dialect.quote):
            row = [row[0].removeprefix("\ufeff"), *row[1:]] if row else []
            if any(cell.strip() for cell in row):
                return blank, row
            blank += 1
    return blank, []


def parse_csv(
    path: Path, dialect: Dialect, texts: Sequence[str], *, skip: Sequence[str] = (), header: Sequence[str]
) -> TableFile:
    """Parse a CSV file by pyarrow; rows of the wrong width are refused by number, empty ones are left out."""
    import pyarrow as pa
    from pyarrow import csv

    wrong: list[tuple[int, str]] = []
    blank: list[int] = []

    def refuse(row: Any) -> str:
        place = (row.number or 0) - 2  # Arrow counts the header as the first row
        if not row.text.strip():
            blank.append(place)
        else:
            wrong.append(
                (place, f"has {row.actual_columns} values instead of {row.expected_columns}: {row.text[:60]!r}")
            )
        return "skip"

    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(
                use_threads=False, encoding=dialect.encoding, skip_rows=_first_row(path, dialect)[0]
            ),
            parse_options=csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote,
                newlines_in_values=True,
                invalid_row_handler=refuse,
                ignore_empty_lines=False,  # or the numbers of the rows after one would not be the file's
            ),
            convert_options=csv.ConvertOptions(
                include_columns=[name for name in header if name not in skip],
                column_types={name: pa.string() for name in texts},
                # Numbers only: a class may be called NA, and a category's missing values are the schema's business.
                null_values=list(MISSING),
                decimal_point=dialect.decimal,
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(one_line(error)) from None
    if wrong:
        raise DataError(_listed_rows([f"{row_number(place)} {what}" for place, what in wrong]))
    found = TableFile(table=table, layout=Layout(), dialect=dialect, header=tuple(header))
    if blank:
        found = attrs.evolve(found, rows=np.delete(np.arange(table.num_rows + len(blank)), blank))
    filled = _has_content(table)
    if len(header) > 1 and not filled.all():  # in a single column, an empty line is a missing value
        found = found.keep(filled)
    if found.table.num_rows == 0:
        raise DataError("there is a header but no row")
    return attrs.evolve(found, empty_rows=table.num_rows + len(blank) - found.table.num_rows)


def from_cells(
    header: Sequence[str], cells: Sequence[Sequence[Any]], texts: Sequence[str], *, skip: Sequence[str] = ()
) -> TableFile:
    """Return the rows of a sheet as a table; rows with nothing in them are left out."""
    import pyarrow as pa

    filled = np.array([not spreadsheets.is_blank(row) for row in cells], dtype=bool)
    if len(header) == 1:
        filled[:] = True  # in a single column, an empty cell is a missing value
    kept = [row for row, good in zip(cells, filled, strict=True) if good]
    if not kept:
        raise DataError("there is a header but no row")
    columns = {
        name: spreadsheets.column_of([row[place] for row in kept], text=name in texts)
        for place, name in enumerate(header)
        if name not in skip
    }
    return TableFile(
        table=pa.table(columns),
        layout=Layout(),
        header=tuple(header),
        rows=np.flatnonzero(filled),
        empty_rows=int((~filled).sum()),
    )


def _has_content(table: pa.Table) -> np.ndarray:
    """Return for each row whether anything is in it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = np.zeros(table.num_rows, dtype=bool)
    for values in table.columns:
        if found.all():
            break
        text = pa.types.is_string(values.type)
        filled = pc.not_equal(pc.utf8_trim_whitespace(values), "").fill_null(False) if text else pc.is_valid(values)
        found |= filled.to_numpy().astype(bool)
    return found


def _listed_rows(found: Sequence[str], most: int = 20) -> str:
    """Return a line for each mistake of its own kind, the first of them all."""
    rest = f"; and {len(found) - most:,} more rows" if len(found) > most else ""
    count = f"{len(found):,} rows are wrong: " if len(found) > 1 else ""
    return f"{count}{'; '.join(found[:most])}{rest}"
