"""CSV and Parquet tables as data: features, candidate sets, known true labels, ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.formats import annotators, set_text, spreadsheets
from wsl_toolkit.data.formats.paths import reading
from wsl_toolkit.data.formats.size_bounds import Budget
from wsl_toolkit.data.formats.text_dialect import Dialect, Given, detect
from wsl_toolkit.data.formats.understanding import understand
from wsl_toolkit.data.table_schema import MISSING, TableSchema, Where, row_number, text_or_null
from wsl_toolkit.errors import DataError, LabelError, did_you_mean, one_line
from wsl_toolkit.labels.candidate_sets import CandidateSets

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
CLASS_PREFIX = "class:"
CANDIDATES, COMPLEMENTARY, LABEL, ID = "candidates", "complementary", "label", "id"
"""Columns that are known by these names where the user does not say otherwise."""

NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
NUMBER_BYTES = 8
MOSTLY = 0.5
"""A text column of which more than this share are numbers is a column of numbers with mistakes in it."""


@attrs.frozen(kw_only=True)
class Layout:
    """Which columns of a table are what."""

    candidates: tuple[str, ...] = ()
    """Columns of candidate sets; several are several annotators."""
    complementary: str | None = None
    indicators: tuple[str, ...] = ()
    """One 0/1 column for each class."""
    label: str | None = None
    id: str | None = None
    classes: tuple[str, ...] | None = None
    combine: str = "union"
    separator: str = set_text.SEPARATOR
    categorical: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    class_prefix: str = CLASS_PREFIX
    empty: str = "refuse"
    """What becomes of a row whose candidate set is empty: refuse, unlabelled or skip."""

    def completed(self, columns: Sequence[str]) -> Layout:
        """Fill in what the columns' names tell, and refuse names that the table does not have."""
        named = [*self.candidates, *self.indicators, *self.categorical, *self.ignore]
        for name in [*named, *(c for c in (self.complementary, self.label, self.id) if c is not None)]:
            if name not in columns:
                raise DataError(
                    f"there is no column {name!r}.{did_you_mean(name, columns)} Columns: {_listed(columns)}"
                )
        found = self
        if not self.has_sets:
            found = self._guessed(columns)
        free = {*found.candidates, *found.indicators, *found.ignore, found.complementary}
        if found.label is None and LABEL in columns and LABEL not in free:
            found = attrs.evolve(found, label=LABEL)
        if found.id is None and ID in columns and ID not in free:
            found = attrs.evolve(found, id=ID)
        return found

    def _guessed(self, columns: Sequence[str]) -> Layout:
        if CANDIDATES in columns:
            return attrs.evolve(self, candidates=(CANDIDATES,))
        indicators = tuple(name for name in columns if name.startswith(self.class_prefix))
        if len(indicators) > 1:
            return attrs.evolve(self, indicators=indicators)
        if COMPLEMENTARY in columns:
            return attrs.evolve(self, complementary=COMPLEMENTARY)
        if self.label or LABEL in columns:
            return self  # true labels alone: a generator draws the sets
        raise DataError(
            f"no column is known to hold candidate sets: name one with --candidates-column or --complementary-column, "
            f"or call 0/1 columns {self.class_prefix}<name>. Columns: {_listed(columns)}"
        )

    @property
    def has_sets(self) -> bool:
        """Whether a column holds candidate sets, in whatever form."""
        return bool(self.candidates or self.complementary or self.indicators)

    @property
    def texts(self) -> list[str]:
        """The columns that are text, whatever is in them."""
        return [*self.candidates, *self.categorical, *(c for c in (self.complementary, self.label, self.id) if c)]

    def features(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that are inputs."""
        taken = {*self.candidates, *self.indicators, *self.ignore, self.complementary, self.label, self.id}
        return [name for name in columns if name not in taken]


@attrs.frozen(kw_only=True, eq=False)
class TableFile:
    """A table as it was read, which column is what, and where its rows are in the file."""

    table: pa.Table
    layout: Layout
    dialect: Dialect | None = None
    """None where the file is no text."""
    header: tuple[str, ...] = ()
    """All columns of the file, ignored ones too."""
    rows: np.ndarray | None = None
    """The row of the file, counting from 0, that each row of the table is; None: the same."""
    empty_rows: int = 0
    """How many rows of the file were left out because nothing is in them."""
    unlabelled_rows: int = 0
    """How many were left out because their candidate set is empty, as the user asked."""

    def where(self, row: int) -> str:
        """Return a row's name for messages, by its place in the file."""
        return row_number(row if self.rows is None else int(self.rows[row]))

    def keep(self, kept: np.ndarray) -> TableFile:
        """Return the rows that a mask chooses."""
        rows = np.arange(self.table.num_rows) if self.rows is None else self.rows
        return attrs.evolve(self, table=self.table.filter(kept), rows=rows[kept])


def read(path: Path, layout: Layout, given: Given | None = None) -> Data:
    """Read a table; whatever is wrong with it is named with the file, the row and the column."""
    return named(path, lambda: to_data(read_table(path, layout, given), path.stem))


def named(path: Path, load: Callable[[], T]) -> T:
    """Run a reader; an error of ours gets the file's name, and a parser's becomes one of ours."""
    with reading(path, "a table"):
        return load()


def read_table(path: Path, layout: Layout, given: Given | None = None) -> TableFile:
    """Read all columns but the ignored ones, numbers as numbers, sets, labels and ids as text; complete the layout."""
    if path.suffix.lower() == ".parquet":
        columns = parquet_columns(path)
        done = layout.completed(columns)
        table = read_parquet(path, [name for name in columns if name not in done.ignore])
        found = TableFile(table=table, layout=done, header=tuple(columns))
    elif path.suffix.lower() == ".xlsx":
        columns, cells = spreadsheets.read_sheet(path, None if given is None else given.sheet)
        done = layout.completed(check_header(columns))
        found = attrs.evolve(from_cells(columns, cells, done.texts, skip=done.ignore), layout=done)
    else:
        dialect = detect(path, given)
        columns = header_of(path, dialect)
        done = layout.completed(columns)
        found = attrs.evolve(parse_csv(path, dialect, done.texts, skip=done.ignore, header=columns), layout=done)
    if done.empty == "skip" and done.has_sets:
        masks, _, _ = _masks(found)
        labelled = torch.cat([mask.any(1) for mask in masks]).numpy()
        found = attrs.evolve(found.keep(labelled), unlabelled_rows=int((~labelled).sum()))
        if found.table.num_rows == 0:
            raise DataError("every candidate set is empty")
    return found


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


def rows_text(rows: Sequence[int], where: Where, most: int = 20) -> str:
    """Return the names of rows that have the same mistake, the first of them all: 'row 2' or 'rows 2, 5, 7'."""
    if len(rows) == 1:
        return where(int(rows[0]))
    shown = ", ".join(where(int(row)).removeprefix("row ") for row in rows[:most])
    return f"rows {shown}" + (f" and {len(rows) - most:,} more" if len(rows) > most else "")


def to_data(file: TableFile, name: str) -> Data:
    """Turn a table into data: encode features, parse sets, find labels and ids."""
    table, layout = file.table, file.layout
    features = table.select(layout.features(table.column_names))
    if not features.column_names:
        raise DataError("no column is left for features")
    _check_numbers(features, layout.categorical, file)
    labelled = labels_of(file)
    schema = TableSchema.infer(features, categorical=layout.categorical)
    x = schema.encode(features, file.where)
    understood = understand(file, schema, x, labelled["candidates"])
    return Data(name=name, x=x, normalise=schema, understood=understood, **labelled)


def labels_of(file: TableFile) -> dict[str, Any]:
    """Return everything of `Data` that is not an input: sets, classes, true labels where known, ids."""
    table, layout = file.table, file.layout
    candidates = _candidates(file) if layout.has_sets else None
    names = _class_names(layout, set(), table) if candidates is None else candidates.class_names
    assert names is not None
    labels = _labels(file, names)
    complete = labels is not None and bool((labels >= 0).all())
    if candidates is None and labels is not None and not complete:
        rows = (labels < 0).nonzero().flatten().tolist()
        raise LabelError(
            f"{rows_text(rows, file.where)}, column {layout.label!r}: there is neither a label nor a candidate set"
        )
    return {
        "y": labels if complete else None,
        "known_y": None if complete else labels,
        "candidates": candidates,
        "num_classes": len(names),
        "class_names": names,
        "ids": _ids(file),
    }


def _masks(file: TableFile) -> tuple[Iterator[Tensor], tuple[str, ...], str]:
    """Return the candidate sets chunk by chunk, the classes, and where they come from, for messages."""
    table, layout, where = file.table, file.layout, file.where
    if layout.indicators:
        names = tuple(name.removeprefix(layout.class_prefix) for name in layout.indicators)
        return set_text.indicator_masks(table, layout.indicators, where), names, "the 0/1 columns"
    if layout.complementary:
        column = set_text.read_column(table.column(layout.complementary), layout.complementary, where, layout.separator)
        names = _class_names(layout, column.classes(), table)
        # What nothing is excluded from is an unlabelled example; what everything is excluded from is refused.
        masks = (~mask for mask in column.masks(names, where))
        return masks, names, f"column {layout.complementary!r} excludes every class, so that"
    columns = [set_text.read_column(table.column(name), name, where, layout.separator) for name in layout.candidates]
    names = _class_names(layout, set().union(*(column.classes() for column in columns)), table)
    place = f"column {layout.candidates[0]!r}" if len(columns) == 1 else f"columns {_listed(layout.candidates)}"
    return _combined(columns, names, layout.combine, where), names, place


def _combined(columns: Sequence[set_text.SetColumn], names: Sequence[str], how: str, where: Where) -> Iterator[Tensor]:
    done = 0
    for masks in zip(*(column.masks(names, where) for column in columns), strict=True):
        try:
            mask = masks[0] if len(masks) == 1 else annotators.combine(masks, how)
        except annotators.DisagreementError as error:
            raise LabelError(
                f"{where(done + error.row)}, columns {_listed([c.name for c in columns])}: the annotators' sets "
                "have no class in common; use --combine union or vote, or leave the row out"
            ) from None
        done += len(mask)
        yield mask


def _candidates(file: TableFile) -> CandidateSets:
    """Put the sets together; empty ones are made full where the user asked for that, else refused by their rows."""
    masks, names, place = _masks(file)
    if len(names) < 2:
        raise LabelError(f"{place} names {len(names)} class: at least 2 are needed")
    empty_rows: list[int] = []

    def checked() -> Iterator[Tensor]:
        done = 0
        for mask in masks:
            empty = ~mask.any(1)
            if file.layout.empty != "unlabelled":
                empty_rows.extend((done + empty.nonzero().flatten()).tolist())
            done += len(mask)
            yield mask | empty.unsqueeze(1)

    found = CandidateSets.from_chunks(checked(), file.table.num_rows, len(names), names)
    if empty_rows:
        rows = rows_text(empty_rows, file.where)
        raise LabelError(
            f"{rows}, {place}: the candidate set is empty; give at least one class, or all "
            "of them if nothing is known (--empty unlabelled does that for such rows, --empty skip leaves them out)"
        )
    return found


def _class_names(layout: Layout, found: set[str], table: pa.Table) -> tuple[str, ...]:
    if layout.classes is not None:
        return layout.classes
    if layout.label and not layout.has_sets:  # beside candidate sets, labels are for evaluation: they add no class
        found = {text for text in _label_texts(table, layout.label) if text}
    return set_text.in_order(found)


def _label_texts(table: pa.Table, column: str) -> list[str]:
    import pyarrow.compute as pc

    from wsl_toolkit.data.table_schema import as_text

    texts = pc.utf8_trim_whitespace(as_text(table.column(column)).fill_null(""))
    return [str(text) for text in pc.unique(texts).to_pylist()]


def _labels(file: TableFile, names: Sequence[str]) -> Tensor | None:
    """Return the class of each row's true label, -1 where it is not known."""
    layout = file.layout
    if layout.label is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    from wsl_toolkit.data.table_schema import as_text

    text = pc.utf8_trim_whitespace(as_text(file.table.column(layout.label)).fill_null(""))
    codes = pc.index_in(text, value_set=pa.array(names, pa.string()))
    unknown = np.flatnonzero(pc.and_(pc.is_null(codes), pc.not_equal(text, "")).to_numpy())
    if len(unknown):
        value = text[int(unknown[0])].as_py()
        hint = did_you_mean(value, names)
        if layout.classes is None and layout.has_sets:
            hint += " It is in no candidate set; if it is a class all the same, name all classes with --classes"
        rows = rows_text(unknown.tolist(), file.where)
        raise LabelError(f"{rows}, column {layout.label!r}: unknown class {value!r}.{hint}")
    return torch.from_numpy(codes.fill_null(-1).to_numpy().astype(np.int64))


def _ids(file: TableFile) -> tuple[str, ...] | None:
    column, where = file.layout.id, file.where
    if column is None:
        return None
    from wsl_toolkit.data.table_schema import as_text

    texts = as_text(file.table.column(column)).to_pylist()
    missing = [row for row, text in enumerate(texts) if not text]
    if missing:
        raise DataError(f"{rows_text(missing, where)}, column {column!r}: the id is missing")
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        if text in first:
            raise DataError(f"{where(first[text])} and {where(row)}, column {column!r}: the same id {text!r} twice")
        first[text] = row
    return tuple(texts)


def _check_numbers(table: pa.Table, categorical: Sequence[str], file: TableFile) -> None:
    """Refuse a column of numbers with a few texts in it: as categories it would be nonsense."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pattern = NUMBER.replace(r"\.", ",") if file.dialect is not None and file.dialect.decimal == "," else NUMBER
    for name in table.column_names:
        values = table.column(name)
        if name in categorical or not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            continue
        values = text_or_null(values, MISSING)
        wrong = pc.invert(pc.match_substring_regex(values, pattern))  # null where the value is missing
        known = len(values) - wrong.null_count
        share = 1 - (pc.sum(wrong).as_py() or 0) / max(known, 1)
        if MOSTLY < share < 1:
            rows = np.flatnonzero(wrong.fill_null(False).to_numpy())
            raise DataError(
                f"{rows_text(rows.tolist(), file.where)}, column {name!r}: {values[int(rows[0])].as_py()!r} is not a "
                f"number, as {share:.0%} of the column are (a column of categories is named with --categorical)"
            )


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown}, … ({len(names)} in all)" if len(names) > most else shown
