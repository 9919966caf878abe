"""What was made of a user's table: how it is written, what each column is, its classes, and what looks wrong."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.data.formats.text_dialect import Dialect
from wsl_toolkit.data.table_columns import DAY_FIRST, MISSING, MONTH_FIRST, Column, DateColumn, WordColumn, is_ambiguous

if TYPE_CHECKING:
    from wsl_toolkit.data.formats.table_layout import Layout, TableFile
    from wsl_toolkit.data.table_schema import TableSchema
    from wsl_toolkit.labels.candidate_sets import CandidateSets

NUMBER_LIKE = re.compile(r"[-+<>~]?\s*\d[\d.,'\s]*%?")
MOSTLY, FEW_ROWS = 0.9, 20
"""What holds for nine of ten is taken for a rule; tables of fewer rows show nothing."""
WORDS = 4
"""Texts of so many words on average are free text."""
OTHER_SEPARATORS = (";", ",", "/", "|")


@attrs.frozen(kw_only=True)
class ColumnRole:
    """What a column was taken for."""

    name: str
    role: str
    detail: str = ""


@attrs.frozen(kw_only=True)
class Understanding:
    """What was made of a table, for people to check before anything is trained."""

    dialect: Dialect | None
    empty_rows: int
    unlabelled_rows: int
    columns: tuple[ColumnRole, ...]
    classes: tuple[tuple[str, int], ...]
    """Each class and how many sets hold it."""
    warnings: tuple[str, ...]

    @property
    def remarks(self) -> list[str]:
        """How the file was read, in sentences."""
        found = []
        if self.dialect is not None:
            found.append(
                f"read as text with {self.dialect.describe()} (--delimiter, --encoding and --decimal say otherwise)"
            )
        if self.empty_rows:
            found.append(f"{self.empty_rows:,} rows with nothing in them were left out")
        if self.unlabelled_rows:
            found.append(f"{self.unlabelled_rows:,} rows with an empty candidate set were left out (--empty skip)")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "dialect": None if self.dialect is None else self.dialect.to_dict(),
            "empty_rows": self.empty_rows,
            "unlabelled_rows": self.unlabelled_rows,
            "columns": [attrs.asdict(column) for column in self.columns],
            "classes": dict(self.classes),
            "warnings": list(self.warnings),
        }


def understand(file: TableFile, schema: TableSchema, x: Tensor, candidates: CandidateSets | None) -> Understanding:
    """Say what each column of a table was taken for, and what about it looks wrong."""
    layout = file.layout
    # Of a date's columns the first is its year; all columns of a text are empty where the text is.
    features = {column.name: (column, x[:, place]) for place, column in reversed([*enumerate(schema.columns)])}
    names = () if candidates is None else candidates.class_names or ()
    counts = [] if candidates is None else candidates.class_counts().tolist()
    warnings = [*_about_classes(names, candidates, layout)]
    roles = []
    for name in file.header:
        if name in features:
            column, values = features[name]
            roles.append(_feature(column, values))
            warnings += _about_feature(column, values, names, layout)
            warnings += _about_dates(column, file)
        else:
            roles.append(ColumnRole(name=name, role=_role(name, layout)))
    return Understanding(
        dialect=file.dialect,
        empty_rows=file.empty_rows,
        unlabelled_rows=file.unlabelled_rows,
        columns=tuple(roles),
        classes=tuple(zip(names, counts, strict=True)),
        warnings=tuple(warnings),
    )


def _role(name: str, layout: Layout) -> str:
    if name in layout.candidates:
        return "candidate sets" if len(layout.candidates) == 1 else "candidate sets of an annotator"
    if name in layout.indicators:
        return "0/1 of a class"
    others = {layout.complementary: "what it is not", layout.label: "true label", layout.id: "id"}
    others[layout.weight] = "weight"
    return others.get(name, "ignored")


def _feature(column: Column, values: Tensor) -> ColumnRole:
    if isinstance(column, WordColumn):
        return ColumnRole(name=column.name, role="text", detail=f"its words, spread over {column.of_all} numbers")
    missing = int(values.isnan().sum())
    gaps = f", {missing:,} missing" if missing else ""
    if column.categories is None:
        known = values[~values.isnan()]
        spread = f"{float(known.min()):g} to {float(known.max()):g}" if len(known) else "no value"
        if isinstance(column, DateColumn):
            parts = f"year, month and day of the week, written {column.written}"
            return ColumnRole(name=column.name, role="date", detail=f"{spread}: {parts}{gaps}")
        return ColumnRole(name=column.name, role="number", detail=f"{spread}{gaps}")
    shown = ", ".join(repr(level) for level in column.categories[:3])
    more = ", …" if len(column.categories) > 3 else ""
    levels = f"{len(column.categories):,} levels: {shown}{more}" if column.categories else "no value"
    return ColumnRole(name=column.name, role="category", detail=f"{levels}{gaps}")


def _about_feature(column: Column, values: Tensor, classes: Sequence[str], layout: Layout) -> Iterator[str]:
    """Yield what looks wrong about a feature."""
    what = f"column {column.name!r}"
    if isinstance(column, WordColumn):
        return
    if bool(values.isnan().all()):
        yield f"{what} has no value at all"
        return
    rows = len(values)
    if column.categories is None:
        whole = rows >= FEW_ROWS and type(column) is Column and bool((values == values.floor()).all())
        if whole and int(values.max() - values.min()) + 1 == rows and len(values.unique()) == rows:
            yield f"{what} counts the rows: if it is an identifier, say --id-column or --ignore"
        return
    levels = column.categories
    parts = [[part.strip() for part in level.split(layout.separator)] for level in levels]
    known = set(classes)
    if len(levels) > 1 and known and _share(all(p in known for p in level) for level in parts) >= MOSTLY:
        if any(len(level) > 1 for level in parts):
            yield f"{what} holds sets of classes: another annotator's? Name it with --candidates-column, or --ignore it"
        else:
            yield f"{what} holds names of classes: if it tells the answer, --ignore it"
    elif len(levels) > 2 and _share(bool(NUMBER_LIKE.fullmatch(level)) for level in levels) >= MOSTLY:
        yield f"{what} is read as categories, but its values look like numbers, such as {levels[0]!r} (--decimal?)"
    elif rows >= FEW_ROWS and len(levels) >= MOSTLY * rows:
        many = sum(len(level.split()) for level in levels) >= WORDS * len(levels)
        kind = "free text" if many else "an identifier"
        words = ", or take its words (--hashed)" if many else ""
        yield f"{what} has {len(levels):,} different texts in {rows:,} rows: if it is {kind}, --ignore it{words}"


def _about_dates(column: Column, file: TableFile) -> Iterator[str]:
    """Yield that day and month may have been exchanged."""
    from wsl_toolkit.data.table_schema import text_or_null

    if not isinstance(column, DateColumn) or column.written not in (DAY_FIRST, MONTH_FIRST):
        return
    text = text_or_null(file.table.column(column.name), MISSING)
    if is_ambiguous(text):
        example = next(value for value in text.to_pylist() if value is not None)
        other = "month-first" if column.written == DAY_FIRST else "day-first"
        yield f"column {column.name!r}: {example!r} is read as {column.written} (--dates {other} reads it otherwise)"


def _about_classes(names: Sequence[str], candidates: CandidateSets | None, layout: Layout) -> Iterator[str]:
    """Yield what looks wrong about the classes."""
    alike: dict[object, list[str]] = defaultdict(list)
    for name in names:
        alike[_likeness(name)].append(name)
    for group in alike.values():
        if len(group) > 1:
            yield f"classes {' and '.join(map(repr, group))} look alike: are they the same?"
    if candidates is None or layout.indicators:
        return
    for separator in OTHER_SEPARATORS:
        cut = [name.split(separator) for name in names if separator in name and separator != layout.separator]
        parts = [part.strip() for name in cut for part in name]
        if len(cut) > 1 and len(set(parts)) < len(parts) and not bool((candidates.sizes > 1).any()):
            first = next(name for name in names if separator in name)
            yield f"classes such as {first!r} look like sets: if {separator!r} separates classes, say --separator"


def _likeness(name: str) -> object:
    """Return what is the same for names that differ in case, blanks, Unicode form or the way to write a number."""
    plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    try:
        return float(plain)
    except ValueError:
        return plain


def _share(found: Iterator[bool]) -> float:
    marks = torch.tensor(list(found))
    return float(marks.double().mean()) if len(marks) else 0.0
