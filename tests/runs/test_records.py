"""A run's records on disk: a damaged line is left out, whatever is in it, and a line of release 0.1 is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wsl_toolkit.runs.folder import RunFolder
from wsl_toolkit.runs.tracking.run_folders import entry_of
from wsl_toolkit.training.engine import EpochRecord


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path, "one")
    for epoch in (1, 2, 3):
        metrics = {"train/risk": float("nan") if epoch == 3 else 0.1 * epoch}
        made.append(EpochRecord(epoch=epoch, metrics=metrics, seconds=0.25))
    return made


def epochs(folder: RunFolder) -> list[int]:
    return [timed.record.epoch for timed in folder.records()]


def test_a_digit_that_changed_makes_a_line_invalid(folder: RunFolder) -> None:
    path = folder.path / "records.jsonl"
    path.write_text(path.read_text().replace("0.2,", "0.3,").replace("0.2}", "0.3}"))
    assert epochs(folder) == [1, 3]
    assert {value.step for value in entry_of(folder).metrics} == {1, 3}, "what is damaged is not delivered"


LINES = ["null", "[]", "3", '"x"', "{}", '{"epoch": null, "metrics": {}, "seconds": 1.0, "time": 5}']
LINES += [
    '{"epoch": 9, "metrics": null, "seconds": 1.0, "time": 5}',
    '{"epoch": true, "metrics": {}, "seconds": 1, "time": 5}',
]
LINES += [
    '{"epoch": 9, "metrics": {"a": null}, "seconds": 1.0, "time": 5}',
    '{"epoch": 9, "metrics": {}, "seconds": 1.0, "time": null}',
]
LINES += [
    '{"epoch": 9, "metrics": {}, "seconds": "1", "time": 5}',
    '{"epoch": 9, "metrics": {}, "seconds": 1.0, "time": 5, "checksum": 7}',
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_no_record_is_left_out(line: str, folder: RunFolder) -> None:
    with (folder.path / "records.jsonl").open("a") as file:
        file.write(f"{line}\n")
    assert epochs(folder) == [1, 2, 3]
    assert len(entry_of(folder).metrics) == 6
    folder.append(EpochRecord(epoch=4, metrics={}, seconds=0.0))
    assert epochs(folder) == [1, 2, 3, 4]


def test_a_line_without_a_checksum_is_read_as_it_was(folder: RunFolder) -> None:
    path = folder.path / "records.jsonl"
    old = [{k: v for k, v in json.loads(line).items() if k != "checksum"} for line in path.read_text().splitlines()]
    assert len(old) == 3
    before = folder.records()
    path.write_text("".join(json.dumps(values) + "\n" for values in old))
    assert [timed.time for timed in folder.records()] == [timed.time for timed in before]
    assert epochs(folder) == [1, 2, 3]
