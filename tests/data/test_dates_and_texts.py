"""Dates become year, month and day of the week; texts are spread word by word; a model does the same to new rows."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path

import attrs
import numpy as np
import openpyxl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wsl_toolkit.data import table_columns
from wsl_toolkit.data.formats.readers import Csv, Parquet, Xlsx
from wsl_toolkit.data.table_columns import DAY_FIRST, ISO, MONTH_FIRST, DateColumn, WordColumn
from wsl_toolkit.data.table_schema import TableSchema
from wsl_toolkit.errors import ConfigError, DataError

HERE = Path()
DAYS = [datetime.date(2024, 2, 29), None, datetime.date(1969, 12, 31), datetime.date(2000, 1, 1)]
WRITERS = {ISO: "%Y-%m-%d", DAY_FIRST: "%d.%m.%Y", MONTH_FIRST: "%m/%d/%Y"}


def features(days) -> list[list[float]]:
    """The literal meaning: year, month from 0, Monday is 0."""
    return [[math.nan] * 3 if day is None else [day.year, day.month - 1, day.weekday()] for day in days]


def write(path: Path, days: list[str]) -> Path:
    rows = [f"{i},{day},{'a|b' if i % 3 else 'b'}" for i, day in enumerate(days)]
    path.write_text("\n".join(["x,seen,candidates", *rows, ""]), encoding="utf-8")
    return path


@pytest.mark.parametrize("written", WRITERS)
def test_dates_of_every_kind_are_read_as_the_calendar_says(tmp_path, written):
    days = ["" if day is None else day.strftime(WRITERS[written]) for day in DAYS]
    data = Csv(path=write(tmp_path / "t.csv", days)).load(HERE)
    np.testing.assert_array_equal(data.x[:, 1:].numpy(), np.array(features(DAYS)))
    assert [column.written for column in data.normalise.columns[1:]] == [written] * 3
    assert data.normalise.names == ["x", "seen"]
    assert TableSchema.from_json(data.normalise.to_json()) == data.normalise


@given(st.lists(st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)), min_size=1, max_size=20))
def test_any_date_is_read_in_any_form_and_some_date_with_the_same_parts_is_given_back(days):
    columns = tuple(table_columns.date_columns("d", DAY_FIRST))
    texts = pa.chunked_array([[f"{day.day}.{day.month}.{day.year:04}" for day in days]])
    for values in (texts, pa.chunked_array([pa.array(days, pa.date32())])):
        x = TableSchema(columns).encode(pa.table({"d": values}))
        assert x.tolist() == features(days)
    again = TableSchema(columns).decode(x)
    assert torch.equal(TableSchema(columns).encode(pa.table(again)), x)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("31.4.2024", DAY_FIRST),
        ("29.2.2023", DAY_FIRST),
        ("0.1.2024", DAY_FIRST),
        ("1.13.2024", DAY_FIRST),
        ("13/1/2024", MONTH_FIRST),
        ("2024-1-0", ISO),
        ("0000-01-01", ISO),
        ("2024-01-01x", ISO),
        ("yesterday", ISO),
        ("1.1.24", DAY_FIRST),
        ("", ISO),
        (None, ISO),
    ],
)
def test_what_is_no_date_is_none(text, written):
    assert np.isnat(table_columns.parse_dates(pa.array([text], pa.string()), written)).all()


def test_a_time_of_the_day_and_programs_ways_to_write_are_understood():
    texts = pa.array(["2024-02-29T23:59", "2024-02-29 00:00:00", "2024-02-29T10:00:00.5Z", "2024/2/29 1:00:00 +0200"])
    assert set(table_columns.parse_dates(texts, ISO).tolist()) == {datetime.date(2024, 2, 29)}


def test_dates_that_can_be_read_two_ways_are_warned_of_and_the_option_decides(tmp_path):
    path = write(tmp_path / "t.csv", ["3/4/2024", "5/6/2024", "7/8/2024"])
    data = Csv(path=path).load(HERE)
    assert data.x[:, 2].tolist() == [3, 5, 7]
    assert any("'3/4/2024' is read as day-month-year (--dates month-first" in w for w in data.understood.warnings)
    other = Csv(path=path, dates="month-first").load(HERE)
    assert other.x[:, 2].tolist() == [2, 4, 6]
    assert any("--dates day-first" in warning for warning in other.understood.warnings)
    clear = Csv(path=write(tmp_path / "c.csv", ["3/4/2024", "25/6/2024", "4/4/2024"])).load(HERE)
    assert clear.x[:, 2].tolist() == [3, 5, 3]
    assert clear.understood.warnings == ()
    american = Csv(path=write(tmp_path / "d.csv", ["3/4/2024", "6/25/2024", "4/4/2024"])).load(HERE)
    assert american.x[:, 2].tolist() == [2, 5, 3]


def test_a_column_of_dates_with_a_mistake_is_refused_by_row_and_can_be_ignored_or_kept(tmp_path):
    path = write(tmp_path / "t.csv", ["1.2.2024", "30.2.2024", "3.2.2024", "14.2.2024"])
    with pytest.raises(DataError, match=r"row 2, column 'seen': '30.2.2024' is not a date, as 75%"):
        Csv(path=path).load(HERE)
    assert Csv(path=path, ignore=("seen",)).load(HERE).x.shape[1] == 1
    assert Csv(path=path, categorical=("seen",)).load(HERE).normalise.columns[1].categories is not None


def test_a_workbooks_dates_are_those_of_the_csv_and_of_parquet(tmp_path):
    days = [day or "" for day in DAYS]
    wanted = Csv(path=write(tmp_path / "t.csv", [str(day) for day in days])).load(HERE)
    book = openpyxl.Workbook()
    book.active.append(["x", "seen", "candidates"])
    for i, day in enumerate(DAYS):
        book.active.append([i, day, "a|b" if i % 3 else "b"])
    book.save(tmp_path / "t.xlsx")
    assert Xlsx(path=tmp_path / "t.xlsx").load(HERE).digest() == wanted.digest()
    Parquet(path=tmp_path / "t.parquet").write(wanted, HERE)
    assert Parquet(path=tmp_path / "t.parquet").load(HERE).digest() == wanted.digest()
    Csv(path=tmp_path / "again.csv").write(wanted, HERE)
    assert Csv(path=tmp_path / "again.csv").load(HERE).digest() == wanted.digest()


def test_what_was_understood_names_dates_and_texts(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"2024-0{1 + i % 9}-11,so many words {i},{'a|b' if i % 2 else 'b'}" for i in range(30)]
    path.write_text("\n".join(["seen,remark,candidates", *rows, ""]))
    plain = Csv(path=path).load(HERE)
    assert any("free text" in warning and "--hashed" in warning for warning in plain.understood.warnings)
    data = Csv(path=path, hashed=("remark",)).load(HERE)
    roles = {column.name: (column.role, column.detail) for column in data.understood.columns}
    assert roles["seen"][0] == "date"
    assert "2024 to 2024: year, month and day of the week" in roles["seen"][1]
    assert roles["remark"] == ("text", "its words, spread over 64 numbers")
    assert data.understood.warnings == ()
    assert data.x.shape == (30, 3 + 64)
    with pytest.raises(DataError, match=r"there is no column 'remarks'\. Did you mean 'remark'"):
        Csv(path=path, hashed=("remarks",)).load(HERE)
    with pytest.raises(ConfigError, match="of the text in column 'remark' no words are kept"):
        Parquet(path=tmp_path / "t.parquet").write(data, HERE)


def test_words_are_spread_alike_whatever_their_order_and_case():
    texts = pa.array(["red blue", "Blue, RED!", "red", None, "", "…"])
    found = table_columns.spread_words(texts, 64)
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[3:] == 0).all()
    np.testing.assert_allclose(np.linalg.norm(found[:3], axis=1), 1)
    assert set(np.unique(found[2])) <= {-1.0, 0.0, 1.0}


def test_a_forged_schema_is_refused():
    good = TableSchema((DateColumn("d", None, "year", ISO), WordColumn("w", None, 3, 4)))
    raw = json.loads(good.to_json())
    for place, change in ((0, {"part": "hour"}), (0, {"written": "backwards"}), (1, {"place": 4}), (1, {"of_all": 0})):
        forged = json.loads(json.dumps(raw))
        forged["columns"][place] |= change
        with pytest.raises(DataError, match="not the schema of a table"):
            TableSchema.from_json(json.dumps(forged))
    assert TableSchema.from_json(json.dumps(raw)) == good
    assert attrs.asdict(TableSchema.from_json('{"columns": [{"name": "a", "categories": null}], "missing": []}'))
