"""Nothing of the user's is overwritten: not an input, not an older result, and never both models at once."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.own_data.conftest import ZOO
from wsl_toolkit.system import files

FAST = ("--epochs", 1, "--lr", 0.1, "--weight-decay", 0, "--quiet")
FIT = ("--no-track", *FAST)


def interrupt_at(line: int, call) -> bool:
    """Call with a KeyboardInterrupt before the n-th line of the file helpers; return whether it came that far."""
    left = line

    def trace(frame, event, arg):
        nonlocal left
        if frame.f_code.co_filename != files.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(None)
    return True


@pytest.mark.parametrize("atomic", [True, False])
def test_an_interruption_at_any_line_leaves_the_old_folder_or_the_new_one(tmp_path, monkeypatch, atomic):
    if not atomic:  # as on a system without such a call
        monkeypatch.setattr(files, "exchange", lambda one, other: False)
    place = tmp_path / "m"

    def write() -> None:
        with files.replacing_folder(place) as made:
            made.mkdir()
            (made / "which").write_text("new")

    for line in range(1, 200):
        place.mkdir(exist_ok=True)
        (place / "which").write_text("old")
        finished = interrupt_at(line, write)
        found = [path for path in tmp_path.rglob("which") if path.parent.name in ("m", "old")]
        assert found, f"interrupted before line {line}: both are gone"
        if finished:
            break
        for rest in tmp_path.iterdir():  # interrupted even while cleaning up
            shutil.rmtree(rest)
    assert finished
    assert (place / "which").read_text() == "new"
    assert line > 10


@pytest.mark.parametrize("atomic", [True, False])
def test_a_failure_to_write_leaves_the_old_folder_as_it_was(tmp_path, monkeypatch, atomic):
    if not atomic:
        monkeypatch.setattr(files, "exchange", lambda one, other: False)
    place = tmp_path / "m"
    place.mkdir()
    (place / "which").write_text("old")
    with pytest.raises(OSError, match="No such file"), files.replacing_folder(place):
        pass  # nothing was made, so that the rename fails
    assert (place / "which").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="no such call")
def test_two_folders_are_exchanged_in_one_step(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not files.exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()


def test_a_model_is_replaced_on_request_and_nothing_else_is(wsl, zoo):
    fit = ("fit", zoo, *ZOO, "--out", "m", *FIT)
    wsl(*fit)
    before = wsl.files()
    assert "--force" in wsl.refused(*fit)
    wsl(*fit, "--force")
    assert wsl.files() == before
    (wsl.home / "m" / "notes.txt").write_text("mine")
    assert "notes.txt" in wsl.refused(*fit, "--force")
    assert (wsl.home / "m" / "notes.txt").read_text() == "mine"
    (wsl.home / "m" / "notes.txt").unlink()
    description = wsl.home / "m" / "MLmodel"
    description.write_text(description.read_text().replace("wsl_toolkit.own_data.serving", "mlflow.sklearn"))
    assert "is not a model that `wsl fit` wrote" in wsl.refused(*fit, "--force")


def test_a_model_through_a_link_replaces_what_the_link_leads_to(wsl, zoo):
    (wsl.home / "deep").mkdir()
    (wsl.home / "m").symlink_to(wsl.home / "deep" / "model")
    fit = ("fit", zoo, *ZOO, "--out", "m", *FIT)
    wsl(*fit)
    wsl(*fit, "--force")
    assert (wsl.home / "m").is_symlink()
    assert (wsl.home / "deep" / "model" / "MLmodel").is_file()


def commands(zoo: Path) -> dict[str, tuple[tuple[object, ...], str]]:
    return {
        "audit": (("audit", zoo, *ZOO, "--quiet"), "--html"),
        "clean": (("clean", zoo, *ZOO, "--folds", 2, *FAST), "--out"),
        "fit": (("fit", zoo, *ZOO, *FIT), "--out"),
        "predict": (("predict", "model", zoo, "--quiet"), "--out"),
    }


@pytest.mark.parametrize("command", ["audit", "clean", "fit", "predict"])
def test_no_command_writes_over_its_input(wsl, zoo, command):
    arguments, option = commands(zoo)[command]
    wsl("fit", zoo, *ZOO, "--out", "model", *FIT)
    before = zoo.read_bytes()
    (wsl.home / "here").symlink_to(wsl.home)
    (wsl.home / "linked.csv").hardlink_to(zoo)
    for out in ("zoo.csv", "./zoo.csv", "here/zoo.csv", "linked.csv"):
        assert "input" in wsl.refused(*arguments, option, out, "--force"), out
    assert zoo.read_bytes() == before


def test_no_command_writes_into_an_input_or_around_it(wsl, zoo):
    wsl("fit", zoo, *ZOO, "--out", "model", *FIT)
    assert "input" in wsl.refused("predict", "model", zoo, "--out", "model/p.csv")
    assert "input" in wsl.refused("fit", zoo, *ZOO, *FIT, "--out", zoo.parent, "--force")
    (wsl.home / "classes.csv").write_text("a\nb\n")
    named = ("--classes-file", "classes.csv", "--out", "classes.csv", "--force")
    assert "input" in wsl.refused("clean", zoo, *ZOO, *FAST, *named)
    assert (wsl.home / "classes.csv").read_text() == "a\nb\n"


@pytest.mark.parametrize("command", ["audit", "clean", "predict"])
def test_an_older_result_is_replaced_on_request_alone(wsl, zoo, command):
    arguments, option = commands(zoo)[command]
    if command == "predict":
        wsl("fit", zoo, *ZOO, "--out", "model", *FIT)
    out = wsl.home / "result.csv"
    out.write_text("an older result")
    assert "--force" in wsl.refused(*arguments, option, out)
    assert out.read_text() == "an older result"
    wsl(*arguments, option, out, "--force")
    assert out.read_text() != "an older result"


@pytest.mark.parametrize("command", ["audit", "clean", "fit", "predict"])
def test_a_place_that_cannot_be_written_is_found_before_any_work(wsl, zoo, command):
    arguments, option = commands(zoo)[command]
    # What is read would be refused too: the place is looked at first.
    arguments = tuple(wsl.home / "nowhere.csv" if argument == zoo else argument for argument in arguments)
    (wsl.home / "file").touch()
    for out in ("file/x.csv", "/proc/nowhere/x.csv", f"{'n' * 300}.csv", f"new/{'n' * 300}.csv"):
        assert "cannot be written" in wsl.refused(*arguments, option, out), out
