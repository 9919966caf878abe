"""Published numbers beside a study's."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from shown_study import NASTY

from wsl_toolkit.errors import DataError
from wsl_toolkit.studies.report.against import Published, against_table, read_published
from wsl_toolkit.studies.report.build import Report, as_text, build_report
from wsl_toolkit.studies.report.statistics import estimate
from wsl_toolkit.studies.report.tables import Table, by_seed

HEADER = "source,protocol,dataset,method,test_accuracy_percent,standard_deviation\n"


def shown(report: Report, published: list[Published]) -> Table:
    built = build_report(report.study, report.states, published)
    return next(table for table in built.tables if table.key == "against")


def test_published_numbers_stand_beside_ours(report: Report, tmp_path: Path) -> None:
    file = tmp_path / "published.csv"
    file.write_text(
        HEADER
        + '"A paper, 2020",theirs,Digits,C-C,90.5,1.25\n'
        + "Another,other,digits,cc,88,\n"
        + "A paper,theirs,mnist,cc,99,\n",
        encoding="utf-8",
    )
    table = shown(report, read_published(file))
    assert [row[3].text for row in table.rows] == ["=CC"] * 4  # two settings, two sources
    wanted = estimate(list(by_seed(report.states[1], "test/accuracy").values()))
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert (first["dataset"].text, first["sets"].text, first["network"].text) == ("digits", "α = 0.9", "linear")
    assert (first["protocol"].text, first["source"].text) == ("theirs", "A paper, 2020")
    assert first["published"].text == "90.50 (sd 1.25)"
    assert first["ours"].text == wanted.show(2, 100)
    assert first["difference"].value == pytest.approx(100 * wanted.mean - 90.5)
    assert first["difference"].text == f"{100 * wanted.mean - 90.5:+.2f}"
    assert table.rows[1][7].text == "88.00"
    assert "1 of 3 published numbers have no counterpart" in table.note


def test_a_way_of_labelling_is_matched_where_it_is_named(report: Report) -> None:
    number = Published(dataset="digits", method="cc", accuracy=90.0)
    for sets, count in (("", 2), ("α = 0.7", 1), ("mcl-skewed", 2), ("mcl-skewed(alpha=0.9)", 1), ("flip", 0)):
        table = against_table(report.study, report.states, [attrs.evolve(number, sets=sets)])
        assert len(table.rows) == count


def test_published_names_cannot_leave_their_cells(report: Report) -> None:
    number = Published(dataset="digits", method=NASTY, accuracy=1.0, source="<script>x</script>", protocol="a|b_c")
    built = build_report(report.study, report.states, [number])
    assert as_text(built, "html").count("<script>") == 1
    assert "<script" not in as_text(built, "markdown")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column 'dataset'"),
        ("dataset,method,accuracy\na,b,1\n", "no column 'test_accuracy_percent'"),
        (HEADER + "s,p,d,m,many,\n", "line 2: test_accuracy_percent must be a number, not 'many'"),
        (HEADER + "s,p,d,m,nan,\n", "must be a number from 0 to 100, not 'nan'"),
        (HEADER + "s,p,d,m,101,\n", "must be a number from 0 to 100, not '101'"),
        (HEADER + "s,p,d,m,10,-1\n", "standard_deviation must be a number, 0 or more"),
        (HEADER + "s,p,,m,10,\n", "line 2: dataset is empty"),
        (HEADER + "s,p\n", "line 2: dataset is empty"),
        (HEADER + 's,p,"d', "not a CSV file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "published.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        read_published(file)


def test_files_that_are_not_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("binary.csv", "missing.csv", "."):
        with pytest.raises(DataError, match=r"cannot be read|there is no file"):
            read_published(tmp_path / name)


def test_control_characters_never_reach_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "published.csv"
    file.write_text(HEADER + "\x1b[31mred,p\u202e,d,m,10,\n", encoding="utf-8")
    (number,) = read_published(file)
    assert (number.source, number.protocol) == ("[31mred", "p")
