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
from wsl_toolkit.data.formats import annotators, set_text
from wsl_toolkit.data.formats.paths import reading
from wsl_toolkit.data.formats.size_bounds import Budget
from wsl_toolkit.data.table_schema import MISSING, TableSchema, row_number, text_or_null
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

    def features(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that are inputs."""
        taken = {*self.candidates, *self.indicators, *self.ignore, self.complementary, self.label, self.id}
        return [name for name in columns if name not in taken]


def read(path: Path, layout: Layout, delimiter: str | None = None) -> Data:
    """Read a table; whatever is wrong with it is named with the file, the row and the column."""

    def load() -> Data:
        table, done = read_table(path, layout, delimiter)
        return to_data(table, done, path.stem)

    return named(path, load)


def named(path: Path, load: Callable[[], T]) -> T:
    """Run a reader; an error of ours gets the file's name, and a parser's becomes one of ours."""
    with reading(path, "a table"):
        return load()


def read_table(path: Path, layout: Layout, delimiter: str | None = None) -> tuple[pa.Table, Layout]:
    """Read all columns but the ignored ones, numbers as numbers, sets, labels and ids as text; complete the layout."""
    if path.suffix.lower() == ".parquet":
        columns = parquet_columns(path)
        done = layout.completed(columns)
        table = read_parquet(path, [name for name in columns if name not in done.ignore])
    else:
        delimiter = delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
        columns = header_of(path, delimiter)
        done = layout.completed(columns)
        texts = [*done.candidates, *done.categorical, *(c for c in (done.complementary, done.label, done.id) if c)]
        table = parse_csv(path, delimiter, texts, skip=done.ignore, header=columns)
    return table, attrs.evolve(done, ignore=())


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


def header_of(path: Path, delimiter: str) -> list[str]:
    """Return the column names of a text file; each may be used once."""
    import csv

    check_text(path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file, delimiter=delimiter), [])
    if not header:
        raise DataError("the file is empty")
    for place, name in enumerate(header):
        if not name.strip():
            raise DataError(f"column {place + 1} has no name; if it is pandas' index, write the file with index=False")
        if header.count(name) > 1:
            raise DataError(f"two columns are called {name!r}")
    return header


def check_text(path: Path) -> None:
    """Refuse a file in another encoding by the line that shows it."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                raise DataError(f"line {number} is not UTF-8 text: save the file as UTF-8") from None


def parse_csv(
    path: Path, delimiter: str, texts: Sequence[str], *, skip: Sequence[str] = (), header: Sequence[str]
) -> pa.Table:
    """Parse a CSV file by pyarrow; a row of the wrong width is refused by its number."""
    import pyarrow as pa
    from pyarrow import csv

    wrong: list[str] = []

    def refuse(row: Any) -> str:
        # Arrow counts the header as the first row.
        place = row_number(row.number - 2) if row.number else "a row"
        wrong.append(f"{place} has {row.actual_columns} values instead of {row.expected_columns}: {row.text[:60]!r}")
        return "error"

    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(
                delimiter=delimiter,
                newlines_in_values=True,
                invalid_row_handler=refuse,
                ignore_empty_lines=len(header) > 1,  # in a single column, an empty line is a missing value
            ),
            convert_options=csv.ConvertOptions(
                include_columns=[name for name in header if name not in skip],
                column_types={name: pa.string() for name in texts},
                # Numbers only: a class may be called NA, and a category's missing values are the schema's business.
                null_values=list(MISSING),
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(wrong[0] if wrong else one_line(error)) from None
    if table.num_rows == 0:
        raise DataError("there is a header but no row")
    return table


def to_data(table: pa.Table, layout: Layout, name: str) -> Data:
    """Turn a table into data: encode features, parse sets, find labels and ids."""
    features = table.select(layout.features(table.column_names))
    if not features.column_names:
        raise DataError("no column is left for features")
    _check_numbers(features, layout.categorical)
    labelled = labels_of(table, layout)
    schema = TableSchema.infer(features, categorical=layout.categorical)
    return Data(name=name, x=schema.encode(features), normalise=schema, **labelled)


def labels_of(table: pa.Table, layout: Layout) -> dict[str, Any]:
    """Return everything of `Data` that is not an input: sets, classes, true labels where known, ids."""
    candidates = _candidates(table, layout) if layout.has_sets else None
    names = _class_names(layout, set(), table) if candidates is None else candidates.class_names
    assert names is not None
    labels = _labels(table, layout, names)
    complete = labels is not None and bool((labels >= 0).all())
    if candidates is None and labels is not None and not complete:
        row = int((labels < 0).nonzero()[0])
        raise LabelError(f"{row_number(row)}, column {layout.label!r}: there is neither a label nor a candidate set")
    return {
        "y": labels if complete else None,
        "known_y": None if complete else labels,
        "candidates": candidates,
        "num_classes": len(names),
        "class_names": names,
        "ids": _ids(table, layout.id),
    }


def _candidates(table: pa.Table, layout: Layout) -> CandidateSets:
    if layout.indicators:
        names = tuple(name.removeprefix(layout.class_prefix) for name in layout.indicators)
        return _collect(set_text.indicator_masks(table, layout.indicators, row_number), table, names, "the 0/1 columns")
    if layout.complementary:
        column = set_text.read_column(
            table.column(layout.complementary), layout.complementary, row_number, layout.separator
        )
        names = _class_names(layout, column.classes(), table)
        # What nothing is excluded from is an unlabelled example; what everything is excluded from is refused.
        masks = (~mask for mask in column.masks(names, row_number))
        return _collect(masks, table, names, f"column {layout.complementary!r} excludes every class, so that")
    columns = [
        set_text.read_column(table.column(name), name, row_number, layout.separator) for name in layout.candidates
    ]
    names = _class_names(layout, set().union(*(column.classes() for column in columns)), table)
    place = f"column {layout.candidates[0]!r}" if len(columns) == 1 else f"columns {_listed(layout.candidates)}"
    return _collect(_combined(columns, names, layout.combine), table, names, place)


def _combined(columns: Sequence[set_text.SetColumn], names: Sequence[str], how: str) -> Iterator[Tensor]:
    done = 0
    for masks in zip(*(column.masks(names, row_number) for column in columns), strict=True):
        try:
            mask = masks[0] if len(masks) == 1 else annotators.combine(masks, how)
        except annotators.DisagreementError as error:
            raise LabelError(
                f"{row_number(done + error.row)}, columns {_listed([c.name for c in columns])}: the annotators' sets "
                "have no class in common; use --combine union or vote, or leave the row out"
            ) from None
        done += len(mask)
        yield mask


def _collect(masks: Iterator[Tensor], table: pa.Table, names: Sequence[str], place: str) -> CandidateSets:
    """Put the sets together; an empty one is refused by its row."""

    def checked() -> Iterator[Tensor]:
        done = 0
        for mask in masks:
            empty = (~mask.any(1)).nonzero().flatten()
            if len(empty):
                raise LabelError(
                    f"{row_number(done + int(empty[0]))}, {place}: the candidate set is empty; give at least one "
                    "class, or all of them if nothing is known"
                )
            done += len(mask)
            yield mask

    if len(names) < 2:
        raise LabelError(f"{place} names {len(names)} class: at least 2 are needed")
    return CandidateSets.from_chunks(checked(), table.num_rows, len(names), names)


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


def _labels(table: pa.Table, layout: Layout, names: Sequence[str]) -> Tensor | None:
    """Return the class of each row's true label, -1 where it is not known."""
    if layout.label is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    from wsl_toolkit.data.table_schema import as_text

    text = pc.utf8_trim_whitespace(as_text(table.column(layout.label)).fill_null(""))
    codes = pc.index_in(text, value_set=pa.array(names, pa.string()))
    unknown = pc.and_(pc.is_null(codes), pc.not_equal(text, "")).to_numpy()
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        value = text[row].as_py()
        hint = did_you_mean(value, names)
        if layout.classes is None and layout.has_sets:
            hint += " It is in no candidate set; if it is a class all the same, name all classes with --classes"
        raise LabelError(f"{row_number(row)}, column {layout.label!r}: unknown class {value!r}.{hint}")
    return torch.from_numpy(codes.fill_null(-1).to_numpy().astype(np.int64))


def _ids(table: pa.Table, column: str | None) -> tuple[str, ...] | None:
    if column is None:
        return None
    from wsl_toolkit.data.table_schema import as_text

    texts = as_text(table.column(column)).to_pylist()
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        if not text:
            raise DataError(f"{row_number(row)}, column {column!r}: the id is missing")
        if text in first:
            raise DataError(
                f"{row_number(first[text])} and {row_number(row)}, column {column!r}: the same id {text!r} twice"
            )
        first[text] = row
    return tuple(texts)


def _check_numbers(table: pa.Table, categorical: Sequence[str]) -> None:
    """Refuse a column of numbers with a few texts in it: as categories it would be nonsense."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in table.column_names:
        values = table.column(name)
        if name in categorical or not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            continue
        values = text_or_null(values, MISSING)
        wrong = pc.invert(pc.match_substring_regex(values, NUMBER))  # null where the value is missing
        known = len(values) - wrong.null_count
        share = 1 - (pc.sum(wrong).as_py() or 0) / max(known, 1)
        if MOSTLY < share < 1:
            row = int(np.flatnonzero(wrong.fill_null(False).to_numpy())[0])
            raise DataError(
                f"{row_number(row)}, column {name!r}: {values[row].as_py()!r} is not a number, as {share:.0%} of the "
                "column are (a column of categories is named with --categorical)"
            )


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown}, … ({len(names)} in all)" if len(names) > most else shown
