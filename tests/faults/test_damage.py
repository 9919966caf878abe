"""A run's folder or a study's, damaged by a failing disk: what can be made again is, and the rest is one clear line."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from fault_tools import folders, wsl_here
from test_kills import assert_same_run

from wsl_toolkit.errors import WslError
from wsl_toolkit.studies.store import StudyFolder


@pytest.fixture
def finished(short_reference: Path, tmp_path: Path) -> Path:
    """A working directory with a finished run of its own."""
    place = tmp_path / "finished"
    shutil.copytree(short_reference, place)
    moved = (str(short_reference), str(place))
    with sqlite3.connect(place / "wsl-runs" / "mlflow.db") as database:
        database.execute("update experiments set artifact_location = replace(artifact_location, ?, ?)", moved)
        database.execute("update runs set artifact_uri = replace(artifact_uri, ?, ?)", moved)
    return place


def damage(path: Path, how: str) -> None:
    """Cut a file short, empty it, or put noise into its middle."""
    content = path.read_bytes()
    middle = len(content) // 2
    noise = random.Random(len(content)).randbytes(20)
    path.write_bytes({"cut": content[:middle], "empty": b"", "noise": content[:middle] + noise + content[middle:]}[how])


DAMAGE = ("cut", "empty", "noise")


@pytest.mark.parametrize("how", DAMAGE)
def test_a_run_whose_record_is_damaged_is_named_and_its_folder_left_alone(how: str, finished: Path) -> None:
    (folder,) = folders(finished)
    shutil.copy(folder.path / "run.json", folder.path / "process.json")  # as if its process had died, too
    damage(folder.path / "run.json", how)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    said = wsl_here(finished, "run", "--resume", folder.run_id, code=2)
    assert said.count("\n") == 1
    assert f"{folder.run_id}/run.json is damaged" in said
    assert "restore it from a backup" in said
    said = wsl_here(finished, "sync")
    assert f"note: {folder.path.relative_to(finished)}/run.json is damaged" in said
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


FILES = {
    "the result": ["result.json"],
    "result and records": ["result.json", "records.jsonl"],
    "result and checkpoint": ["result.json", "checkpoints/*.pt"],
    "result, records and checkpoint": ["result.json", "records.jsonl", "checkpoints/*.pt"],
    "result and candidate sets": ["result.json", "candidates.safetensors"],
}


@pytest.mark.parametrize("what", FILES)
def test_what_is_damaged_in_a_run_and_can_be_made_again_is_to_the_same_bits(
    what: str, finished: Path, short_reference: Path
) -> None:
    (folder,) = folders(finished)
    for pattern in FILES[what]:
        for path in folder.path.glob(pattern):
            damage(path, "noise" if path.suffix == ".pt" else "cut")
    said = wsl_here(finished, "run", "--resume", folder.run_id, "--quiet")
    if what.endswith("and checkpoint"):
        assert "is damaged: its content does not match its checksum; starting afresh" in said
    assert_same_run(finished, short_reference, epochs=6)
    assert folders(finished)[0].result() is not None


@pytest.mark.parametrize("how", DAMAGE)
def test_a_run_whose_configuration_is_damaged_is_refused_in_one_line(how: str, finished: Path) -> None:
    (folder,) = folders(finished)
    (folder.path / "result.json").unlink()
    damage(folder.path / "config.toml", how)
    said = wsl_here(finished, "run", "--resume", folder.run_id, code=2)
    assert said.count("\n") == 1
    assert "config.toml" in said or "configuration" in said


def test_a_digit_that_changed_in_a_record_is_put_right_from_the_checkpoint(
    finished: Path, short_reference: Path
) -> None:
    (folder,) = folders(finished)
    path = folder.path / "records.jsonl"
    text = path.read_text()
    at = text.index("0.", 40) + 2
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
    assert [timed.record for timed in folder.records()] != [
        timed.record for timed in folders(short_reference)[0].records()
    ]
    (folder.path / "result.json").unlink()
    wsl_here(finished, "run", "--resume", folder.run_id, "--quiet")
    assert_same_run(finished, short_reference, epochs=6)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", ["study.toml", "data.json"])
def test_a_damaged_file_of_a_study_is_one_clear_error_that_names_it(name: str, how: str, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path, "small")
    folder.create()
    good = {"study.toml": 'name = "small"\ntrials = 2\n', "data.json": '{"digits": "0123456789abcdef"}'}
    path = folder.path / name
    path.write_text(good[name])
    damage(path, how)
    with pytest.raises(WslError, match=name):
        folder.read_study() if name == "study.toml" else folder.data_digests()
