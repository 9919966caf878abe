"""Tables as people have them: any delimiter, encoding, decimal sign and quotes, with blank rows and odd sets."""

from __future__ import annotations

import json
import random
from pathlib import Path

import openpyxl
import pytest
import torch
from safetensors.torch import load_file

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.formats.readers import Csv, Xlsx
from wsl_toolkit.data.formats.text_dialect import Dialect, detect
from wsl_toolkit.errors import ConfigError, DataError, LabelError

HERE = Path()
FIT = ("--epochs", 2, "--lr", 0.1, "--weight-decay", 0, "--quiet", "--no-track")
CLASSES = ("Grippe, saisonnière", "Fièvre Q", "Lyme", "Crohn's")


def patients(n: int = 80) -> list[dict[str, str]]:
    """Made patients: numbers with gaps, categories, and classes with accents, commas and an apostrophe."""
    dice = random.Random(5)
    rows = []
    for i in range(n):
        truth = i % len(CLASSES)
        sets = sorted({CLASSES[truth], dice.choice(CLASSES)})
        rows.append(
            {
                "âge": str(20 + 3 * truth + dice.randrange(5)),
                "température": "" if dice.random() < 0.15 else f"{37 + truth / 2 + dice.random():.2f}",
                "région": dice.choice(["Île-de-France", "Bretagne", "Provence"]),
                "candidates": "|".join(sets),
            }
        )
    return rows


def text_of(rows, delimiter: str = ",", decimal: str = ".", blank: bool = False, quote: str = '"') -> str:
    def cell(value: str) -> str:
        number = value.replace(".", "").isdigit()
        value = value.replace(".", decimal) if number else value
        wild = quote in value or delimiter in value or quote == "'"
        return quote + value.replace(quote, 2 * quote) + quote if wild else value

    lines = [delimiter.join(cell(name) for name in rows[0])]
    for number, row in enumerate(rows):
        lines.append(delimiter.join(cell(value) for value in row.values()))
        if blank and number % 20 == 3:
            lines += ["", delimiter * (len(row) - 1), "   "]
    return "\n".join([*(["", ""] if blank else []), *lines, *(["", ""] if blank else []), ""])


DIALECTS = {
    "semicolons, decimal comma, Latin-1, blank rows": (";", ",", "latin-1", True, '"'),
    "semicolons, decimal comma, UTF-8 with a mark": (";", ",", "utf-8-sig", False, '"'),
    "tabs, UTF-16": ("\t", ".", "utf-16", False, '"'),
    "tabs, decimal comma": ("\t", ",", "utf-8", True, '"'),
    "bars, Windows": ("|", ".", "cp1252", False, '"'),
    "single quotes": (",", ".", "utf-8", False, "'"),
    "semicolons, blank rows, Windows' ends of lines": (";", ".", "utf-8", True, '"'),
}


@pytest.fixture
def clean_data(tmp_path) -> Data:
    (tmp_path / "clean.csv").write_text(text_of(patients()), encoding="utf-8")
    return Csv(path=tmp_path / "clean.csv").load(HERE)


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_reads_as_the_same_data(tmp_path, clean_data, name):
    delimiter, decimal, encoding, blank, quote = DIALECTS[name]
    text = text_of(patients(), delimiter, decimal, blank, quote)
    if "Windows' ends" in name:
        text = text.replace("\n", "\r\n")
    path = tmp_path / "messy.csv"
    path.write_bytes(text.encode(encoding))
    data = Csv(path=path).load(HERE)
    assert data.digest() == clean_data.digest()
    assert data.class_names == clean_data.class_names
    assert data.understood.dialect.delimiter == delimiter
    assert data.understood.dialect.decimal == decimal
    assert data.understood.empty_rows == (0 if not blank else 14)


def test_what_was_found_is_printed_and_can_be_overridden(wsl, tmp_path):
    (tmp_path / "m.csv").write_bytes(text_of(patients(), ";", ",").encode("latin-1"))
    told = " ".join(wsl("audit", "m.csv").output.split())
    assert "values between semicolons, decimal comma, cp1252" in told
    assert "--delimiter, --encoding and --decimal" in told
    found = wsl.json("audit", "m.csv", "--encoding", "latin-1", "--decimal", ".", "--json")
    assert found["understood"]["dialect"]["encoding"] == "latin-1"
    roles = {column["name"]: column["role"] for column in found["understood"]["columns"]}
    assert roles == {"âge": "number", "température": "category", "région": "category", "candidates": "candidate sets"}
    assert any("'température' is read as categories" in warning for warning in found["understood"]["warnings"])
    assert "no text encoding 'klingon'" in wsl.refused("audit", "m.csv", "--encoding", "klingon")
    assert "single character" in wsl.refused("audit", "m.csv", "--delimiter", "::")
    assert ". or ," in wsl.refused("audit", "m.csv", "--decimal", ";")
    assert "line 1 is not utf-8 text" in wsl.refused("audit", "m.csv", "--encoding", "utf-8")


def test_the_same_model_to_the_bit_and_predict_reads_what_fit_read(wsl, tmp_path):
    (tmp_path / "a.csv").write_text(text_of(patients()), encoding="utf-8")
    (tmp_path / "b.csv").write_bytes(text_of(patients(), ";", ",", blank=True).encode("latin-1"))
    for name in ("a", "b"):
        wsl("fit", f"{name}.csv", "--out", name, *FIT)
    one, other = (load_file(tmp_path / name / "data" / "model.safetensors") for name in ("a", "b"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    answers = {(m, d): wsl("predict", m, f"{d}.csv").stdout for m in ("a", "b") for d in ("a", "b")}
    assert len(set(answers.values())) == 1
    # Whole numbers alone do not show what the decimal sign is: the model knows it.
    (tmp_path / "one.csv").write_bytes("âge;température;région\n30;38,5;Bretagne\n".encode("latin-1"))
    (tmp_path / "two.csv").write_text("âge,température,région\n30,38.5,Bretagne\n", encoding="utf-8")
    assert wsl("predict", "b", "one.csv").stdout == wsl("predict", "b", "two.csv").stdout
    (tmp_path / "three.csv").write_text("âge#température#région\n30#38,5#Bretagne\n", encoding="utf-8")
    assert "is missing" in wsl.refused("predict", "b", "three.csv")
    found = wsl("predict", "b", "three.csv", "--delimiter", "#", "--decimal", ",")
    assert found.stdout == wsl("predict", "b", "two.csv").stdout


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,x;y\n2,x\n", ","),
        ("a;b, c;d\n1,5;2;x\n2,5;3;y\n", ";"),
        ("a\n1\n2\n", ","),
        ("a,b\n1\n1,2\n", ","),
        ("x,candidates\n1,a|b\n2,a\n", ","),
        ('"a,b";c\n"1,2";3\n', ";"),
        ("", ","),
    ],
)
def test_the_delimiter_cuts_all_rows_alike(tmp_path, text, delimiter):
    (tmp_path / "t.csv").write_text(text)
    assert detect(tmp_path / "t.csv").delimiter == delimiter


def test_text_with_one_broken_character_is_refused_not_garbled(tmp_path):
    content = bytearray(text_of(patients()).encode())
    content[content.index("É".encode() if "É".encode() in content else "Î".encode())] = 0x41
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match="is not utf-8 text"):
        Csv(path=tmp_path / "t.csv").load(HERE)
    (tmp_path / "t.csv").write_bytes(b"a,candidates\n1,b\n\0\0\0,c\n")
    with pytest.raises(DataError, match="line 3 holds a zero"):
        Csv(path=tmp_path / "t.csv").load(HERE)


def test_a_dialect_survives_json_and_another_thing_is_none():
    dialect = Dialect(delimiter=";", encoding="cp1252", decimal=",")
    assert Dialect.from_dict(json.loads(json.dumps(dialect.to_dict()))) == dialect
    for wrong in (None, {}, [], {"delimiter": ";"}, {**dialect.to_dict(), "quote": 1}):
        assert Dialect.from_dict(wrong) is None


# -------------------------------------------------------------- sets and rows


@pytest.mark.parametrize("cell", ["['cat', 'dog']", "('cat', 'dog')", "{'dog', 'cat'}", '["cat", "dog"]', "cat|dog"])
def test_sets_as_python_writes_them_are_read(tmp_path, cell):
    quoted = cell.replace('"', '""')
    (tmp_path / "t.csv").write_text(f'x,candidates\n1,"{quoted}"\n2,cat\n3,owl\n')
    assert Csv(path=tmp_path / "t.csv").load(HERE).candidates.to_names()[0] == ["cat", "dog"]


def test_a_name_in_brackets_is_a_name(tmp_path):
    (tmp_path / "t.csv").write_text("x,candidates\n1,(unknown)|b\n2,{x}\n3,b\n")
    assert Csv(path=tmp_path / "t.csv").load(HERE).class_names == ("(unknown)", "b", "{x}")


HOLES = "x,candidates\n1,a|b\n2,\n3,b\n,\n4,\n5,a\n"


def test_empty_sets_are_refused_all_at_once_or_treated_as_asked(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HOLES)
    with pytest.raises(LabelError, match=r"rows 2, 5, column 'candidates': the candidate set is empty.*--empty skip"):
        Csv(path=path).load(HERE)
    skipped = Csv(path=path, empty="skip").load(HERE)
    assert skipped.x.flatten().tolist() == [1, 3, 5]
    assert (skipped.understood.empty_rows, skipped.understood.unlabelled_rows) == (1, 2)
    kept = Csv(path=path, empty="unlabelled").load(HERE)
    assert kept.x.flatten().tolist() == [1, 2, 3, 4, 5]
    assert kept.candidates.full_count == 3


def test_row_numbers_are_the_files_own_where_rows_were_left_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,label,candidates\n1,,a|b\n\n,,\n   \n2,,a\n3,zebra,b\n4,,\n")
    with pytest.raises(LabelError, match=r"row 6, column 'label': unknown class 'zebra'"):
        Csv(path=path, empty="unlabelled").load(HERE)
    with pytest.raises(LabelError, match=r"row 7, column 'candidates'"):
        Csv(path=path).load(HERE)


def test_all_bad_rows_are_listed_and_the_first_twenty_shown(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,candidates\n" + "".join(f"{i},a|b\n{i}\n" for i in range(50)))
    with pytest.raises(DataError, match=r"50 rows are wrong: row 2 has 1 values instead of 2.*and 30 more rows"):
        Csv(path=path).load(HERE)
    path.write_text("x,candidates\n" + "".join(f"{i},a|b\n{i},\n" for i in range(50)))
    with pytest.raises(LabelError, match=r"rows 2, 4, 6, .*, 40 and 30 more, column 'candidates'"):
        Csv(path=path).load(HERE)
    path.write_text("x,candidates\n" + "".join(f"{i},a|b\n{i},a\n{'oops' if i % 9 == 0 else i},b\n" for i in range(30)))
    with pytest.raises(DataError, match=r"rows 3, 30, 57, 84, column 'x': 'oops' is not a number"):
        Csv(path=path).load(HERE)


def test_an_unknown_way_to_treat_empty_sets_is_refused(wsl, tmp_path):
    (tmp_path / "t.csv").write_text(HOLES)
    assert "refuse" in wsl.refused("audit", "t.csv", "--empty", "guess")
    with pytest.raises(ConfigError):
        Csv(path=tmp_path / "t.csv", decimal="x").load(HERE)


# ------------------------------------------------------------------ workbooks


def workbook(path: Path, rows, blank: bool = False) -> Path:
    """Write a workbook with a sheet of notes behind the table."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "patients"
    for _ in range(2 * blank):
        sheet.append([])
    sheet.append(list(rows[0]))
    for number, row in enumerate(rows):
        sheet.append([float(v) if v.replace(".", "").isdigit() else v or None for v in row.values()])
        if blank and number % 20 == 3:
            sheet.append([])
    book.create_sheet("notes").append(["nothing", "here"])
    book.save(path)
    return path


@pytest.mark.parametrize("blank", [False, True])
def test_a_workbook_reads_as_the_same_data(tmp_path, clean_data, blank):
    data = Xlsx(path=workbook(tmp_path / "p.xlsx", patients(), blank)).load(HERE)
    assert data.digest() == clean_data.digest()
    assert data.understood.empty_rows == (4 if blank else 0)


def test_a_workbook_gives_the_same_model_and_the_same_predictions(wsl, tmp_path):
    (tmp_path / "a.csv").write_text(text_of(patients()), encoding="utf-8")
    workbook(tmp_path / "b.xlsx", patients(), blank=True)
    wsl("fit", "a.csv", "--out", "a", *FIT)
    wsl("fit", "b.xlsx", "--sheet", "patients", "--out", "b", *FIT)
    one, other = (load_file(tmp_path / name / "data" / "model.safetensors") for name in ("a", "b"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    answers = {wsl("predict", m, d).stdout for m in ("a", "b") for d in ("a.csv", "b.xlsx")}
    assert len(answers) == 1


def test_what_is_wrong_with_a_workbook_is_said(wsl, tmp_path):
    path = workbook(tmp_path / "p.xlsx", patients())
    assert "there is no sheet 'patient'. Did you mean 'patients'?" in wsl.refused("audit", path, "--sheet", "patient")
    book = openpyxl.Workbook()
    book.save(path)
    assert "the sheet is empty" in wsl.refused("audit", path)
    book.active.append(["x", "candidates"])
    book.active.append([1, "a|b", "stray"])
    book.save(path)
    assert "row 1 has a value in a column without a name" in wsl.refused("audit", path)
    path.write_bytes(b"PK\3\4 not a workbook")
    assert "cannot be read" in wsl.refused("audit", path)
    with pytest.raises(ConfigError, match="read, not written"):
        Xlsx(path=path).write(None, HERE)


def test_a_workbook_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    path = workbook(tmp_path / "p.xlsx", patients())
    monkeypatch.setenv("WSL_MAX_DATA_GB", "0.000001")
    with pytest.raises(DataError, match="the workbook would take"):
        Xlsx(path=path).load(HERE)


# -------------------------------------------------------- what was understood


def understood(tmp_path: Path, header: str, rows: list[str], **options):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return Csv(path=path, **options).load(HERE).understood


def test_columns_and_classes_are_shown_before_training(wsl, tmp_path):
    rows = "".join(f"{i},{i / 7},{'rouge' if i % 3 else 'bleu'},x,{'a|b' if i % 2 else 'c'},\n" for i in range(40))
    (tmp_path / "t.csv").write_text(f"id,taille,couleur,note,candidates,label\n{rows}", encoding="utf-8")
    told = " ".join(wsl("fit", "t.csv", "--ignore", "note", "--out", "m", "--epochs", 1, "--no-track").stderr.split())
    for words in ("id id", "taille number", "couleur category 2 levels: 'bleu', 'rouge'", "note ignored"):
        assert words in told
    assert "candidates candidate sets" in told
    assert "label true label" in told
    assert "a (20), b (20), c (20)" in told
    assert "What each column is" not in wsl("fit", "t.csv", "--out", "q", *FIT).output


@pytest.mark.parametrize(
    ("values", "sets", "words"),
    [
        ([str(i) for i in range(40)], ["a|b", "b"], "'f' counts the rows"),
        (
            [f"P-{i:04}" for i in range(40)],
            ["a|b", "b"],
            "'f' has 40 different texts in 40 rows: if it is an identifier",
        ),
        ([f"the patient number {i} is ill" for i in range(40)], ["a|b", "b"], "if it is free text, --ignore it"),
        (["", "NA"], ["a|b", "b"], "'f' has no value at all"),
        (["a", "b"], ["a|b", "b"], "'f' holds names of classes"),
        (["a|b", "b"], ["a|b", "b"], "'f' holds sets of classes: another annotator's?"),
        (['"1,5"', '"2,5"', '"3,7"'], ["a|b", "b"], "'f' is read as categories, but its values look like numbers"),
        (["x", "y"], ["Flu|cold", "flu", "cold"], "classes 'Flu' and 'flu' look alike"),
        (["x", "y"], ["1|2", "1.0", "01"], "classes '01' and '1' and '1.0' look alike"),
        (["x", "y"], ["caf\u00e9|b", "cafe\u0301"], "look alike"),
        (["x", "y"], ["a;b", "b;c", "c"], "if ';' separates classes, say --separator"),
    ],
)
def test_what_looks_wrong_is_warned_of(tmp_path, values, sets, words):
    rows = [f"{values[i % len(values)]},{i % 5}.5,{sets[i % len(sets)]}" for i in range(40)]
    found = understood(tmp_path, "f,g,candidates", rows)
    assert any(words in warning for warning in found.warnings), found.warnings


def test_a_sound_table_is_warned_of_nothing(tmp_path):
    rows = [f"{'xyz'[i % 3]},{i % 5}.5,{['a|b', 'b', 'a, first'][i % 3].replace(',', '')}" for i in range(40)]
    assert understood(tmp_path, "f,g,candidates", rows).warnings == ()
