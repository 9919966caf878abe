"""Tables: columns of numbers, categories, dates and texts, with missing values, as inputs of a network.

A table is kept as one float64 matrix of raw values: numbers as they are, categories as codes, NaN where a value is
missing. That makes a table an ordinary `Data.x`, which is split, indexed and hashed like images are, and everything
that is learned from it (medians, means, which categories there are) is learned in `TableSchema.fit`, which sees the
training rows alone. The alternative, to hand rows of mixed types around until the split is known, would make every
user of `Data` know about tables. The price is that a category is a float: exact up to 2^53 of them.

scikit-learn does the learning (SimpleImputer, StandardScaler, OneHotEncoder); what it learned becomes buffers of a
torch module that computes the same function, so that a model can carry its preprocessing without a pickle.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor, nn

from wsl_toolkit.data import dataset, table_columns
from wsl_toolkit.data.table_columns import MISSING, Column, DateColumn, Where, WordColumn, row_number
from wsl_toolkit.errors import DataError, did_you_mean
from wsl_toolkit.system.json_files import parse_json

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CATEGORIES = 1000
"""A text column with more different values than this is a mistake, such as free text or an id."""


@attrs.frozen
class TableSchema:
    """The feature columns of a table, in order: enough to turn raw rows into numbers and back."""

    columns: tuple[Column, ...]
    missing: tuple[str, ...] = MISSING

    @classmethod
    def infer(
        cls,
        table: pa.Table,
        *,
        categorical: Sequence[str] = (),
        hashed: Sequence[str] = (),
        month_first: bool = False,
        missing: Sequence[str] = MISSING,
        most_categories: int = MOST_CATEGORIES,
    ) -> TableSchema:
        """Take numbers and booleans as numbers, text and the columns named `categorical` as categories.

        Dates, as such or as texts that all are, become their parts, and texts named `hashed` are spread word by word.
        """
        columns: list[Column] = []
        for name in table.column_names:
            values = table.column(name)
            written = None if name in categorical or name in hashed else date_style(values, missing, month_first)
            if name in hashed:
                columns += table_columns.word_columns(name)
            elif written is not None:
                columns += table_columns.date_columns(name, written)
            elif name in categorical or _is_text(values.type):
                columns.append(Column(name, _categories(values, name, missing, most_categories)))
            elif _is_number(values.type):
                columns.append(Column(name))
            else:
                raise DataError(
                    f"column {name!r} holds {values.type}, neither numbers nor text: leave it out (--ignore), or "
                    "turn it into numbers first"
                )
        return cls(tuple(columns), tuple(missing))

    @property
    def names(self) -> list[str]:
        """The names of the table's columns, each once."""
        return table_columns.sources(self.columns)

    def encode(self, table: pa.Table, where: Where = row_number) -> Tensor:
        """Return raw rows as float64 [n, d]; columns may come in any order, and others are ignored."""
        x = torch.empty(table.num_rows, len(self.columns), dtype=torch.float64)
        parsed: dict[str, np.ndarray] = {}
        for position, column in enumerate(self.columns):
            if column.name not in table.column_names:
                raise DataError(f"column {column.name!r} is missing.{did_you_mean(column.name, table.column_names)}")
            values = table.column(column.name)
            if isinstance(column, DateColumn | WordColumn):
                if column.name not in parsed:
                    parsed[column.name] = self._parse(column, values, where)
                parts = parsed[column.name]
                x[:, position] = (
                    column.of(parts) if isinstance(column, DateColumn) else torch.from_numpy(parts[:, column.place])
                )
            elif column.categories is None:
                x[:, position] = _numbers(values, column.name, self.missing, where)
            else:
                x[:, position] = _codes(values, column.categories, self.missing)
        return x

    def _parse(self, column: DateColumn | WordColumn, values: Any, where: Where) -> np.ndarray:
        """Return a column's dates, or its words spread over columns."""
        text = values if table_columns.is_date(values.type) else text_or_null(values, self.missing)
        if isinstance(column, DateColumn):
            return table_columns.read_dates(values, text, column, where)
        return table_columns.spread_words(text, column.of_all)

    def decode(self, x: Tensor) -> dict[str, Any]:
        """Return raw rows as pyarrow columns by name: the inverse of `encode`.

        Of a date, the day of the month is not known: it is some day that `encode` turns into the same. The words of a
        text are not known at all: it is empty.
        """
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for position, column in enumerate(self.columns):
            values = x[:, position].numpy()
            if column.name in columns:
                continue
            if isinstance(column, WordColumn):
                columns[column.name] = pa.nulls(len(x), pa.string())
            elif isinstance(column, DateColumn):
                parts = [x[:, i] for i, other in enumerate(self.columns) if other.name == column.name]
                columns[column.name] = table_columns.some_dates(parts[0], parts[1], parts[2], column.written)
            elif column.categories is None:
                columns[column.name] = pa.array(values, from_pandas=True)
            else:
                codes = pa.array(values, from_pandas=True).cast(pa.int64())
                columns[column.name] = pa.array(column.categories, pa.string()).take(codes)
        return columns

    def problem(self, x: Tensor) -> str | None:
        """Return the first infinite value with its place, or None; NaN is a missing value."""
        for position, column in enumerate(self.columns):
            wrong = torch.isinf(x[:, position]).nonzero().flatten()
            if len(wrong):
                return f"{int(wrong[0])} has an infinite value in column {column.name!r}"
        return None

    def fit(self, x: Tensor) -> TableTransform:
        """Learn from training rows: medians for missing numbers, means and spreads, the categories there are."""
        numeric = [i for i, column in enumerate(self.columns) if column.categories is None]
        categorical = [i for i, column in enumerate(self.columns) if column.categories is not None]
        fill, shift, spread = _learn_numbers(x, numeric, [column.name for column in self.columns])
        return TableTransform(
            numeric=torch.tensor(numeric, dtype=torch.long),
            fill=fill,
            shift=shift,
            spread=spread,
            categorical=_learn_categories(x, categorical),
        )

    def to_json(self) -> str:
        """Return the schema as JSON."""
        return json.dumps(attrs.asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TableSchema:
        """Read what `to_json` wrote."""
        try:
            raw = parse_json(text)
            columns = tuple(table_columns.column_from(values) for values in raw["columns"])
            return cls(columns, tuple(map(str, raw["missing"])))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"not the schema of a table: {error}") from None


class TableTransform(nn.Module):
    """Raw rows [n, d] -> float32 [n, p]: numbers filled and scaled, then one 0/1 column for each known category.

    A category that training never saw is 0 in all of its columns; a missing one has a column of its own if training
    had any missing there.
    """

    numeric: Tensor
    fill: Tensor
    shift: Tensor
    spread: Tensor
    source: Tensor
    code: Tensor

    def __init__(
        self, *, numeric: Tensor, fill: Tensor, shift: Tensor, spread: Tensor, categorical: tuple[Tensor, Tensor]
    ) -> None:
        super().__init__()
        self.register_buffer("numeric", numeric)
        # Copies: torch warns when it writes a network some of whose tensors are parts of one.
        self.register_buffer("fill", fill.clone())
        self.register_buffer("shift", shift.clone())
        self.register_buffer("spread", spread.clone())
        self.register_buffer("source", categorical[0])
        self.register_buffer("code", categorical[1])

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's inputs."""
        numbers = x[:, self.numeric]
        numbers = torch.where(torch.isnan(numbers), self.fill, numbers).sub(self.shift).div(self.spread)
        codes = x[:, self.source]
        chosen = torch.where(torch.isnan(codes), -1, codes) == self.code
        return torch.cat([numbers.float(), chosen.float()], dim=1)


# ------------------------------------------------------------------ learning


def _learn_numbers(x: Tensor, columns: list[int], names: list[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Return each numeric column's median (0 if it has no value at all), and its mean and spread once filled."""
    from sklearn.impute import SimpleImputer

    learned = torch.zeros(3, len(columns), dtype=torch.float64)
    for start, block in _blocks(x, columns):
        numbers = x[:, block]
        with np.errstate(over="ignore"):  # values too large are named below
            imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(numbers.numpy())
        filled = torch.from_numpy(imputer.transform(numbers.numpy()))
        mean, spread = dataset.column_statistics(filled, [f"column {names[i]!r}" for i in block])
        learned[:, start : start + len(block)] = torch.stack([torch.from_numpy(imputer.statistics_), mean, spread])
    return learned[0], learned[1], learned[2]


def _learn_categories(x: Tensor, columns: list[int]) -> tuple[Tensor, Tensor]:
    """Return for each output column the raw column it looks at, and the code it looks for; -1 means missing."""
    from sklearn.preprocessing import OneHotEncoder

    source: list[int] = []
    codes: list[Tensor] = []
    for _, block in _blocks(x, columns):
        encoder = OneHotEncoder(handle_unknown="ignore").fit(x[:, block].numpy())
        for column, categories in zip(block, encoder.categories_, strict=True):
            source += [column] * len(categories)
            codes.append(torch.from_numpy(categories).nan_to_num(nan=-1))
    return torch.tensor(source, dtype=torch.long), torch.cat([torch.zeros(0, dtype=torch.float64), *codes])


def _blocks(x: Tensor, columns: list[int]) -> list[tuple[int, list[int]]]:
    """Return the columns in blocks of limited size, each with its place; columns are learned independently."""
    width = max(1, dataset.CHUNK_CELLS // max(1, len(x)))
    return [(start, columns[start : start + width]) for start in range(0, len(columns), width)]


# -------------------------------------------------------------------- arrow


def date_style(values: Any, missing: Sequence[str] = MISSING, month_first: bool = False) -> str | None:
    """Return how a pyarrow column writes its dates; None where not every value is a date."""
    if table_columns.is_date(values.type):
        return table_columns.ISO
    if not _is_text(values.type):
        return None
    written, share = table_columns.how_written(text_or_null(values, missing), month_first=month_first)
    return written if share == 1 else None


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(check(kind) for check in checks)


def as_text(values: Any) -> Any:
    """Return a pyarrow column as text: whole floats as integers (pandas turns integers with gaps into floats)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
        whole = pc.all(pc.equal(pc.floor(values), values), min_count=0).as_py()
        values = values.cast(pa.int64()) if whole else values
    return values.cast(pa.string())


def text_or_null(values: Any, missing: Sequence[str]) -> Any:
    """Return a pyarrow column as trimmed text, null where it says that a value is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(as_text(values))
    return pc.if_else(pc.is_in(text, value_set=pa.array(missing, pa.string())), None, text)


def _categories(values: Any, name: str, missing: Sequence[str], most: int) -> tuple[str, ...]:
    import pyarrow.compute as pc

    found = pc.drop_null(pc.unique(text_or_null(values, missing)))
    if len(found) > most:
        raise DataError(
            f"column {name!r} has {len(found):,} different texts, such as {found[0].as_py()!r}: too many for "
            f"categories (at most {most:,}); leave the column out (--ignore), take its words as features (--hashed), "
            "or turn it into numbers"
        )
    return tuple(sorted(found.to_pylist()))


def _codes(values: Any, categories: Sequence[str], missing: Sequence[str]) -> Tensor:
    """Return the place of every value among the categories, NaN if missing, one past the last if unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = text_or_null(values, missing)
    found = pc.index_in(text, value_set=pa.array(categories, pa.string()))
    codes = pc.if_else(pc.is_valid(text), pc.fill_null(found, len(categories)), None)
    return torch.from_numpy(codes.cast(pa.float64()).to_numpy(zero_copy_only=False).copy())


def _numbers(values: Any, name: str, missing: Sequence[str], where: Where) -> Tensor:
    """Return a column of numbers, NaN if missing; text among them and infinite values are refused by row."""
    import pyarrow as pa

    if _is_text(values.type):
        values = _parse_numbers(text_or_null(values, missing), name, where)
    if not _is_number(values.type):
        raise DataError(f"column {name!r} must hold numbers, but it holds {values.type}")
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise DataError(f"{where(int(infinite[0]))}, column {name!r}: the value is infinite or too large")
    return torch.from_numpy(numbers.copy())


def _parse_numbers(text: Any, name: str, where: Where) -> Any:
    """Parse text as numbers; the first that is none is named."""
    import pyarrow as pa

    try:
        return text.cast(pa.float64())
    except pa.ArrowInvalid:
        for row, value in enumerate(text.to_pylist()):
            try:
                float(value or 0)
            except ValueError:
                raise DataError(f"{where(row)}, column {name!r}: {value!r} is not a number") from None
        raise DataError(f"column {name!r} holds text that is not a number") from None
