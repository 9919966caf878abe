"""CSV and Parquet tables as data: features, candidate sets, known true labels, ids."""

from __future__ import annotations

import re
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
from wsl_toolkit.data.formats.table_layout import Layout, TableFile, listed
from wsl_toolkit.data.formats.table_rows import (
    check_header,
    from_cells,
    header_of,
    parquet_columns,
    parse_csv,
    read_parquet,
)
from wsl_toolkit.data.formats.text_dialect import Given, detect
from wsl_toolkit.data.formats.understanding import understand
from wsl_toolkit.data.table_columns import MISSING, Where, how_written, parse_dates
from wsl_toolkit.data.table_schema import TableSchema, text_or_null
from wsl_toolkit.errors import DataError, LabelError, did_you_mean
from wsl_toolkit.labels.annotators import Annotator
from wsl_toolkit.labels.candidate_sets import CandidateSets

if TYPE_CHECKING:
    import pyarrow as pa
T = TypeVar("T")
NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
MOSTLY = 0.5
"""A text column of which more than this share are numbers is a column of numbers with mistakes in it."""


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
    _check_numbers(features, (*layout.categorical, *layout.hashed), file)
    labelled = labels_of(file)
    schema = TableSchema.infer(
        features, categorical=layout.categorical, hashed=layout.hashed, month_first=layout.month_first
    )
    x = schema.encode(features, file.where)
    understood = understand(file, schema, x, labelled["candidates"])
    people = annotators_of(file, labelled["class_names"])
    return Data(name=name, x=x, normalise=schema, understood=understood, annotators=people, **labelled)


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
        "weights": _weights(file),
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
    place = f"column {layout.candidates[0]!r}" if len(columns) == 1 else f"columns {listed(layout.candidates)}"
    return _combined(columns, names, layout.combine, where), names, place


def _combined(columns: Sequence[set_text.SetColumn], names: Sequence[str], how: str, where: Where) -> Iterator[Tensor]:
    done = 0
    for masks in zip(*(column.masks(names, where) for column in columns), strict=True):
        try:
            mask = masks[0] if len(masks) == 1 else annotators.combine(masks, how)
        except annotators.DisagreementError as error:
            raise LabelError(
                f"{where(done + error.row)}, columns {listed([c.name for c in columns])}: the annotators' sets "
                "have no class in common; use --combine union or vote, or leave the row out"
            ) from None
        done += len(mask)
        yield mask


def annotators_of(file: TableFile, names: Sequence[str]) -> tuple[Annotator, ...]:
    """Return what each of several columns of candidate sets says by itself."""
    layout, where = file.layout, file.where
    if len(layout.candidates) < 2:
        return ()
    return tuple(
        Annotator.from_chunks(
            name,
            set_text.read_column(file.table.column(name), name, where, layout.separator).masks(names, where),
            file.table.num_rows,
            len(names),
            names,
        )
        for name in layout.candidates
    )


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


def _weights(file: TableFile) -> Tensor | None:
    """Return how much each row counts; refuse what is no weight by its row."""
    column = file.layout.weight
    if column is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    values = file.table.column(column)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        wrong = [row for row, value in enumerate(values.to_pylist()) if not re.match(NUMBER, str(value))]
        raise DataError(f"{rows_text(wrong or [0], file.where)}, column {column!r}: a weight is a number, 0 or more")
    numbers = pc.cast(values, pa.float64()).fill_null(np.nan).to_numpy()
    rows = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(rows):
        raise DataError(
            f"{rows_text(rows.tolist(), file.where)}, column {column!r}: a weight is a number, 0 or more, not "
            f"{values[int(rows[0])].as_py()!r}"
        )
    return torch.from_numpy(np.array(numbers))


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
        _check_dates(values, name, file)
        wrong = pc.invert(pc.match_substring_regex(values, pattern))  # null where the value is missing
        known = len(values) - wrong.null_count
        share = 1 - (pc.sum(wrong).as_py() or 0) / max(known, 1)
        if MOSTLY < share < 1:
            rows = np.flatnonzero(wrong.fill_null(False).to_numpy())
            raise DataError(
                f"{rows_text(rows.tolist(), file.where)}, column {name!r}: {values[int(rows[0])].as_py()!r} is not a "
                f"number, as {share:.0%} of the column are (a column of categories is named with --categorical)"
            )


def _check_dates(text: Any, name: str, file: TableFile) -> None:
    """Refuse a column of dates with a few other texts in it: as categories it would be nonsense."""
    written, share = how_written(text, month_first=file.layout.month_first)
    if MOSTLY < share < 1:
        dates = np.isnat(parse_dates(text, written))
        rows = np.flatnonzero(dates & text.is_valid().to_numpy(zero_copy_only=False))
        raise DataError(
            f"{rows_text(rows.tolist(), file.where)}, column {name!r}: {text[int(rows[0])].as_py()!r} is not a date, "
            f"as {share:.0%} of the column's values are, written {written} (--ignore leaves the column out, "
            "--categorical takes it as it is)"
        )
