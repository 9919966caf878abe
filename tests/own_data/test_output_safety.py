"""Written files: readable by whom the umask allows, without formulas; and no text commands the terminal."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.own_data.conftest import ZOO
from wsl_toolkit.cli.console import console, printable
from wsl_toolkit.own_data.result_files import guarded, to_csv
from wsl_toolkit.system.files import write_atomically

FAST = ("--epochs", 1, "--lr", 0.1, "--weight-decay", 0, "--quiet")
EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e"


@pytest.fixture(params=[0o077, 0o027, 0o022, 0o002], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_files_with_peoples_data_follow_the_umask(wsl, zoo, umask):
    wsl("fit", zoo, *ZOO, "--out", "m", "--no-track", *FAST)
    wsl("audit", zoo, *ZOO, "--html", "a.html", "--quiet")
    for ending in ("csv", "parquet", "json"):
        wsl("predict", "m", zoo, "--out", f"p.{ending}", "--quiet")
    written = [wsl.home / "m", wsl.home / "a.html", *(wsl.home / "m").rglob("*"), *wsl.home.glob("p.*")]
    assert len(written) > 10
    for path in written:
        wanted = (0o777 if path.is_dir() else 0o666) & ~umask
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_a_file_that_was_made_private_stays_so(tmp_path):
    write_atomically(tmp_path / "x", "old")
    (tmp_path / "x").chmod(0o600)
    write_atomically(tmp_path / "x", "new")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_formula_becomes_text(text):
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("value", ["cat", "-5", "+1.5e3", "-,5", "", 3.5, None, "a=b"])
def test_what_is_no_formula_stays_as_it_is(value):
    assert guarded(value) == value


def test_exported_csv_holds_no_formula_unless_asked(wsl, tmp_path):
    rows = "".join(f"=id{i},{i % 2 * 9 + i / 100},{'=cmd()' if i % 2 else 'b'}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"id,x,candidates\n{rows}")
    wsl("fit", "t.csv", "--out", "m", "--no-track", *FAST)
    for command in (("predict", "m", "t.csv", "--id-column", "id"), ("clean", "t.csv", "--folds", 2, *FAST)):
        wsl(*command, "--out", "safe.csv", "--force")
        wsl(*command, "--out", "raw.csv", "--raw", "--force")
        wsl(*command, "--out", "exact.json", "--force")
        safe, raw = (pd.read_csv(name) for name in ("safe.csv", "raw.csv"))
        exact = pd.DataFrame(json.loads(Path("exact.json").read_text(encoding="utf-8")))
        assert {"'=cmd()", "b"} >= set(safe["label"])
        assert safe["id"].str.startswith("'=id").all()
        assert raw["id"].tolist() == exact["id"].tolist() == [f"=id{i}" for i in range(60)]
        assert raw["label"].tolist() == exact["label"].tolist()
    assert wsl("predict", "m", "t.csv", "--id-column", "id").stdout.count("'=id") == 60
    assert wsl("predict", "m", "t.csv", "--id-column", "id", "--raw").stdout.count("'=id") == 0


def test_numbers_of_a_result_keep_all_their_digits():
    frame = pd.DataFrame({"a": [0.1 + 0.2, -1e-300], "b": ["-1", "=x"]})
    text = io.StringIO()
    to_csv(frame, text)
    back = pd.read_csv(io.StringIO(text.getvalue()))
    assert back["a"].tolist() == frame["a"].tolist()


def test_control_characters_are_shown_and_lines_are_kept():
    assert printable("a\x1b[31m\x07\x9b\x7fb\n\tç 猫\u202e") == "a\\x1b[31m\\x07\\x9b\\x7fb\n\tç 猫\\u202e"


def test_no_label_reaches_the_terminal_as_a_command(wsl, tmp_path, monkeypatch):
    rows = "".join(f"{EVIL}{i},{i % 2 * 9 + i / 100},{EVIL if i % 2 else 'b'},\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"id,x,candidates,label\n{rows}", encoding="utf-8")
    told = [
        wsl("audit", "t.csv"),
        wsl("fit", "t.csv", "--out", "m", "--no-track", "--epochs", 1),
        wsl("fit", "t.csv", "--out", "n", "--no-track", "--epochs", 1, "--json"),
        wsl("clean", "t.csv", "--out", "c.csv", "--folds", 2, *FAST[:-1]),
        wsl("predict", "m", "t.csv", "--json"),
    ]
    (tmp_path / "bad.csv").write_text(
        f"x,candidates,{EVIL}\n1,a|b,\n2,b,\n{EVIL},a,1\n1,a,2\n3,a,4\n", encoding="utf-8"
    )
    told.append(wsl("audit", "bad.csv", code=2))
    told.append(wsl("audit", f"{EVIL}.csv", code=2))
    for result in told:
        assert not set(result.output) & set("\x1b\x07\x9b\u202e"), result.output
    report = json.loads(told[2].stdout)
    assert EVIL in report["class_names"], "JSON says it exactly"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    console().print(EVIL)
    assert "title" in sys.stdout.getvalue()
    assert "\x1b]0" not in sys.stdout.getvalue()
