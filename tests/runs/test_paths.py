"""Directories with characters that mean something in an address: the database is in them, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsl_toolkit.runs.tracking import database
from wsl_toolkit.runs.tracking.outbox import Entry, Outbox, Value
from wsl_toolkit.runs.tracking.store import Tracker, default_uri

pytestmark = pytest.mark.usefixtures("small_pictures")

NAMES = ["what?", "a%20b", "a#b", "a\nb", "ünï ✓", "100%"]


@pytest.mark.parametrize("name", [*NAMES, "plain", "a b", "a;b&c=d", "a@b"])
def test_the_address_of_a_database_leads_back_to_its_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "mlflow.db"
    assert database.sqlite_path(database.sqlite_uri(path)) == path


@pytest.mark.parametrize("name", ["what?", "a%20b", "a#b", "ü\n✓"])
def test_a_store_in_any_directory_holds_its_runs_and_files_and_leaves_nothing_beside_it(
    name: str, tmp_path: Path
) -> None:
    home = tmp_path / name / "wsl-runs"
    text = tmp_path / "text.txt"
    text.write_text("hello")
    tracker = Tracker(default_uri(home), "wsl-digits", home)
    entry = Entry(key="k", name="n", metrics=[Value("a", 1.0, 1, 1)], files=[(text, "texts")], status="FINISHED")
    done = Outbox(tracker, "wsl.key").deliver(entry)
    assert database.is_whole(home / "mlflow.db")
    assert [file.path for file in tracker.client.list_artifacts(done.run_id, "texts")] == ["texts/text.txt"]
    assert [path.read_text() for path in (home / "artifacts").rglob("text.txt")] == ["hello"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "text.txt"])
