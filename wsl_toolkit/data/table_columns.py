"""What the columns of a table are: numbers, categories, and parts of dates and of texts.

A date becomes three columns, its year, its month and its day of the week. A text of which the words matter becomes a
fixed number of columns: each word adds to one of them, chosen by a hash of the word, so that nothing is learned and no
word of the training data is kept. All columns of one date or text have the name of the table's column they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.errors import DataError

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Texts that stand for a missing feature value."""

ISO, DAY_FIRST, MONTH_FIRST = "year-month-day", "day-month-year", "month-day-year"
TIME = r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?(?:Z|UTC|[-+]\d{2}:?\d{2}))?)?$"
DATES = {
    ISO: rf"^(?P<year>\d{{4}})[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}}){TIME}",
    DAY_FIRST: rf"^(?P<day>\d{{1,2}})[-/.](?P<month>\d{{1,2}})[-/.](?P<year>\d{{4}}){TIME}",
    MONTH_FIRST: rf"^(?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}})[-/.](?P<year>\d{{4}}){TIME}",
}
"""How dates are written; a time of the day may follow, and is left out."""
WRITTEN = {ISO: "%Y-%m-%d", DAY_FIRST: "%d.%m.%Y", MONTH_FIRST: "%m/%d/%Y"}

MONTHS = tuple(str(number) for number in range(1, 13))
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WORD_COLUMNS = 64
"""A text's words are spread over so many columns."""

LOOKED_AT = 50
"""Where none of so many values is a date, no more are looked at."""

Where = Callable[[int], str]


def row_number(row: int) -> str:
    """Return a row's name for messages, counting from 1."""
    return f"row {row + 1}"


@attrs.frozen
class Column:
    """A feature column: of numbers, or of categories if it lists them."""

    name: str
    categories: tuple[str, ...] | None = None


@attrs.frozen
class DateColumn(Column):
    """A part of a date: its year is a number, its month and its day of the week are categories."""

    part: str = "year"
    written: str = ISO
    """How the table writes its dates, one of `DATES`."""

    def __attrs_post_init__(self) -> None:
        if self.part not in PARTS or self.written not in DATES:
            raise ValueError(f"no part {self.part!r} of a date written {self.written!r}")

    def of(self, dates: np.ndarray) -> Tensor:
        """Return this part of dates, NaN where one is missing."""
        found = PARTS[self.part](dates).astype(np.float64)
        return torch.from_numpy(np.where(np.isnat(dates), np.nan, found))


@attrs.frozen
class WordColumn(Column):
    """One of the columns over which a text's words are spread."""

    place: int = 0
    of_all: int = WORD_COLUMNS

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.place < self.of_all:
            raise ValueError(f"no column {self.place} of {self.of_all}")


def date_columns(name: str, written: str) -> list[Column]:
    """Return the columns of a date."""
    return [
        DateColumn(name, None, "year", written),
        DateColumn(name, MONTHS, "month", written),
        DateColumn(name, WEEKDAYS, "day of the week", written),
    ]


def word_columns(name: str, count: int = WORD_COLUMNS) -> list[Column]:
    """Return the columns of a text."""
    return [WordColumn(name, None, place, count) for place in range(count)]


def column_from(values: dict[str, Any]) -> Column:
    """Return the column that `attrs.asdict` took apart, whichever kind it is."""
    name = str(values["name"])
    categories = None if values["categories"] is None else tuple(map(str, values["categories"]))
    if "part" in values:
        return DateColumn(name, categories, str(values["part"]), str(values["written"]))
    if "place" in values:
        return WordColumn(name, categories, int(values["place"]), int(values["of_all"]))
    return Column(name, categories)


# --------------------------------------------------------------------- dates


def is_date(kind: Any) -> bool:
    """Return whether a pyarrow type holds dates, with or without a time."""
    import pyarrow as pa

    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def how_written(text: Any, *, month_first: bool = False) -> tuple[str, float]:
    """Return how a column of texts, null where missing, writes its dates, and which share of its values are."""
    import pyarrow.compute as pc

    orders = (ISO, MONTH_FIRST, DAY_FIRST) if month_first else (ISO, DAY_FIRST, MONTH_FIRST)
    different = pc.drop_null(pc.unique(text))
    if not any(bool((~np.isnat(parse_dates(different[:LOOKED_AT], written))).any()) for written in orders):
        return ISO, 0.0
    shares = [float((~np.isnat(parse_dates(different, written))).mean()) for written in orders]
    best = max(range(len(orders)), key=lambda place: (shares[place], -place))
    return orders[best], shares[best]


def is_ambiguous(text: Any) -> bool:
    """Return whether every date of a column might be read with day and month exchanged, and some would be others."""
    one, other = (parse_dates(text, written) for written in (DAY_FIRST, MONTH_FIRST))
    known = ~np.isnat(one)
    return bool(known.any()) and bool((known == ~np.isnat(other)).all()) and bool((one[known] != other[known]).any())


def parse_dates(text: Any, written: str) -> np.ndarray:
    """Return dates [n] from a pyarrow column of texts, NaT where a text is missing or no date of that kind."""
    import pyarrow.compute as pc

    found = pc.extract_regex(text.combine_chunks() if hasattr(text, "combine_chunks") else text, DATES[written])
    year, month, day = (_numbers_of(pc.struct_field(found, part)) for part in ("year", "month", "day"))
    good = (year > 0) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    year, month, day = (np.where(good, part, 1) for part in (year, month, day))
    first = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    dates = first.astype("datetime64[D]") + (day - 1)
    good &= dates.astype("datetime64[M]") == first  # 31 April is in May
    return np.where(good, dates, np.datetime64("NaT", "D"))


def _numbers_of(text: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    # What did not match is null; a pattern that fits nowhere leaves empty texts.
    filled = pc.if_else(pc.equal(text, ""), None, text).fill_null("0")
    numbers: np.ndarray = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def read_dates(values: Any, text: Any, column: DateColumn, where: Where) -> np.ndarray:
    """Return the dates of a pyarrow column; a text that is none is refused by its row."""
    import pyarrow as pa

    if is_date(values.type):
        dates: np.ndarray = values.cast(pa.date32()).to_numpy(zero_copy_only=False).astype("datetime64[D]")
        return dates
    dates = parse_dates(text, column.written)
    other = parse_dates(text, ISO)  # as workbooks and programs write them, whatever the model's own file did
    dates = np.where(np.isnat(dates), other, dates)
    wrong = np.flatnonzero(np.isnat(dates) & text.is_valid().to_numpy(zero_copy_only=False))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where(row)}, column {column.name!r}: {text[row].as_py()!r} is not a date, written {column.written}"
        )
    return dates


def some_dates(year: Tensor, month: Tensor, weekday: Tensor, written: str) -> Any:
    """Return for each row the first date of its year and month on its day of the week, as a table would write it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = (year.isnan() | month.isnan() | weekday.isnan()).numpy()
    years, months, days = (part.nan_to_num(nan=1).long().numpy() for part in (year, month, weekday))
    first = ((years - 1970).astype("datetime64[Y]").astype("datetime64[M]") + months).astype("datetime64[D]")
    dates = pa.array(first + (days - _weekday(first)) % 7, pa.date32(), mask=missing)
    return dates if written == ISO else pc.strftime(dates, WRITTEN[written])


def _weekday(dates: np.ndarray) -> np.ndarray:
    return (dates.astype(np.int64) + 3) % 7  # the first of January 1970 was a Thursday


PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda dates: dates.astype("datetime64[Y]").astype(np.int64) + 1970,
    "month": lambda dates: dates.astype("datetime64[M]").astype(np.int64) % 12,
    "day of the week": lambda dates: _weekday(dates.astype("datetime64[D]")),
}


# --------------------------------------------------------------------- texts


def spread_words(text: Any, columns: int) -> np.ndarray:
    """Return texts as vectors of length 1, [n, columns]: each word adds 1 or -1 where its hash says; no word, zeros."""
    from sklearn.feature_extraction.text import HashingVectorizer

    made = HashingVectorizer(n_features=columns, token_pattern=r"(?u)\b\w+\b", dtype=np.float64)
    vectors: np.ndarray = made.transform(text.fill_null("").to_pylist()).toarray()
    return vectors


def sources(columns: Sequence[Column]) -> list[str]:
    """Return the names of the table's columns that features come from, each once, in order."""
    return list(dict.fromkeys(column.name for column in columns))
