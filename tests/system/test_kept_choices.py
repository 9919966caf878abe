"""Choices that several processes share: the first one counts, and a damaged file costs nothing but time."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from wsl_toolkit.system.kept_choices import KeptChoices


def test_what_was_kept_is_found_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "wsl-runs" / "plans.json"
    assert KeptChoices(path).find("a") is None
    assert KeptChoices(path).keep("a", {"threads": 2}) == {"threads": 2}
    assert KeptChoices(path).find("a") == {"threads": 2}
    assert KeptChoices(path).find("b") is None


def test_the_first_choice_counts_for_whoever_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    slow, fast = KeptChoices(path), KeptChoices(path)
    assert slow.find("a") is None
    fast.keep("a", {"threads": 1})
    assert slow.keep("a", {"threads": 2}) == {"threads": 1}
    assert slow.find("a") == {"threads": 1}


def _keep(path: Path, number: int, answers: multiprocessing.Queue[int]) -> None:
    answers.put(KeptChoices(path).keep("same", {"number": number})["number"])
    KeptChoices(path).keep(f"own {number}", {"number": number})


def test_processes_that_keep_at_once_agree_and_lose_nothing(tmp_path: Path) -> None:
    path, context = tmp_path / "plans.json", multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[int] = context.Queue()
    workers = [context.Process(target=_keep, args=(path, number, answers)) for number in range(6)]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert len(set(found)) == 1
    assert all(KeptChoices(path).find(f"own {number}") == {"number": number} for number in range(6))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"choices": 3}', '{"choices": {"a": 1}}', '{"choices": {}, "checksum": "00000000"}']
)
def test_a_damaged_file_is_said_once_and_written_anew(tmp_path: Path, content: str) -> None:
    path, said = tmp_path / "plans.json", list[str]()
    path.write_text(content)
    choices = KeptChoices(path, said.append)
    assert choices.find("a") is None
    assert choices.find("b") is None
    assert len(said) == 1
    assert "plans.json is not used" in said[0]
    choices.keep("a", {"threads": 2})
    assert KeptChoices(path).find("a") == {"threads": 2}


def test_where_nothing_can_be_written_choices_stay_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said: list[str] = []
    choices = KeptChoices(tmp_path / "file" / "plans.json", said.append)
    assert choices.keep("a", {"threads": 2}) == {"threads": 2}
    assert choices.find("a") == {"threads": 2}
    assert "kept for this process only" in said[0]


def test_without_leave_to_write_a_file_is_read_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    KeptChoices(path).keep("a", {"threads": 2})
    before = os.stat(path).st_mtime_ns
    looking = KeptChoices(path, writes=False)
    assert looking.find("a") == {"threads": 2}
    assert looking.keep("b", {"threads": 1}) == {"threads": 1}
    assert os.stat(path).st_mtime_ns == before
