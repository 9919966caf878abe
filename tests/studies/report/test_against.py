"""Published numbers beside a study's."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import attrs
import pytest
from shown_study import NASTY

from wsl_toolkit.errors import DataError
from wsl_toolkit.studies.report.against import Published, against_table, compare, read_published
from wsl_toolkit.studies.report.build import Report, as_plain, as_text, build_report, write_report
from wsl_toolkit.studies.report.statistics import estimate
from wsl_toolkit.studies.report.tables import Table, by_seed

pytestmark = pytest.mark.usefixtures("small_pictures")

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
        + "A paper,theirs,mnist,cc,99,\n"
        + "A paper,theirs,mnist,lw,98,\n"
        + "A paper,theirs,digits,unheard-of,97,\n",
        encoding="utf-8",
    )
    table = shown(report, read_published(file))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["method"].text for row in rows] == ["=CC"] * 4 + ["unheard-of"]  # two settings, two sources
    wanted = estimate(list(by_seed(report.states[1], "test/accuracy").values()))
    first = rows[0]
    assert (first["dataset"].text, first["sets"].text, first["network"].text) == ("digits", "α = 0.9", "linear")
    assert (first["protocol"].text, first["source"].text) == ("theirs", "A paper, 2020")
    assert first["published"].text == "90.50 (sd 1.25)"
    assert first["ours"].text == wanted.show(2, 100)
    assert first["difference"].value == pytest.approx(100 * wanted.mean - 90.5)
    assert first["difference"].text == f"{100 * wanted.mean - 90.5:+.2f}"
    assert rows[1]["published"].text == "88.00"
    assert [rows[-1][name].text for name in ("ours", "difference", "verdict")] == ["–", "–", "not run"]
    assert "Not run here, with the number of published accuracies: mnist (2)." in table.note


def test_verdicts_are_by_the_points_that_are_given(report: Report) -> None:
    ours = 100 * estimate(list(by_seed(report.states[1], "test/accuracy").values())).mean
    near = Published(dataset="digits", method="cc", accuracy=ours - 2, sets="α = 0.9")
    far = attrs.evolve(near, accuracy=ours - 4)
    for within, verdicts, summary in (
        (3.0, ["within 3 points", "more than 3 points higher"], "Within 3 points: 1 of 2 comparisons, 1 methods"),
        (4.0, ["within 4 points"] * 2, "Within 4 points: 2 of 2 comparisons, 1 methods at least once (cc)."),
        (0.5, ["more than 0.5 points higher"] * 2, "Within 0.5 points: 0 of 2 comparisons."),
    ):
        table = against_table(report.study, report.states, [near, far], within)
        assert [row[-1].text for row in table.rows] == verdicts
        assert summary in table.note
    higher = attrs.evolve(near, accuracy=min(100.0, ours + 3.5))
    (each,) = compare(report.study, report.states, [higher])
    assert each.verdict(0.25) == "more than 0.25 points lower"


def test_columns_that_nobody_filled_in_are_left_out(report: Report) -> None:
    table = against_table(report.study, report.states, [Published(dataset="digits", method="cc", accuracy=90.0)])
    assert table.columns == ("dataset", "sets", "network", "method", "published", "ours", "difference", "verdict")
    assert table.labels == 4


def test_csv_json_and_the_folder_hold_a_row_for_each_published_number(report: Report, tmp_path: Path) -> None:
    published = [Published(dataset=d, method=m, accuracy=50.0) for d, m in (("digits", "cc"), ("mnist", "cc"))]
    built = build_report(report.study, report.states, published, within=1)
    text = as_text(built, "csv")
    rows = list(csv.DictReader(text.splitlines()))
    assert [(row["dataset"], row["trials"]) for row in rows] == [("digits", "3"), ("digits", "3"), ("mnist", "0")]
    wanted = 100 * estimate(list(by_seed(report.states[1], "test/accuracy").values())).mean
    assert float(rows[0]["ours"]) == pytest.approx(wanted)
    assert float(rows[0]["difference"]) == pytest.approx(wanted - 50)
    assert (rows[2]["ours"], rows[2]["difference"], rows[2]["verdict"]) == ("", "", "not run")
    assert rows[0]["method"] == "'=CC"  # no spreadsheet takes it for a formula
    plain = json.loads(json.dumps(as_plain(built)))
    assert [row["verdict"] for row in plain["against"]][2] == "not run"
    assert plain["against"][0]["ours"] == pytest.approx(wanted)
    written = write_report(built, tmp_path / "all")
    assert (tmp_path / "all" / "against.csv") in written
    assert (tmp_path / "all" / "against.csv").read_text() == text
    for form in ("markdown", "latex", "html"):
        assert "more than 1 points higher" in as_text(built, form)
    assert as_text(build_report(report.study, report.states), "csv").startswith("dataset,generator,")


def test_a_way_of_labelling_is_matched_where_it_is_named(report: Report) -> None:
    number = Published(dataset="digits", method="cc", accuracy=90.0)
    for sets, count in (("", 2), ("α = 0.7", 1), ("mcl-skewed", 2), ("mcl-skewed(alpha=0.9)", 1), ("flip", 0)):
        compared = compare(report.study, report.states, [attrs.evolve(number, sets=sets)])
        assert sum(each.ours is not None for each in compared) == count


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
