"""`wsl doctor` sees what is wrong, says how to fix it, and is silent about what is well only when asked."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wsl_toolkit.cli import main
from wsl_toolkit.plugins import loading
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs import doctor
from wsl_toolkit.runs.doctor import OK, PROBLEM, Finding, examine

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WSL_DATA_DIR", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def findings(topic: str, uri: str | None = None, data_dir: Path = Path("data")) -> list[Finding]:
    return [finding for finding in examine(load_plugins(), data_dir, uri) if finding.topic == topic]


def test_a_sound_installation_has_no_problem_and_every_topic_is_looked_at() -> None:
    found = call("--json")
    assert found.exit_code == 0, found.output
    report: dict[str, Any] = json.loads(found.output)
    assert report["problems"] == 0
    topics = {finding["topic"] for finding in report["findings"]}
    assert {"python", "packages", "torch", "plugins", "tracking", "data", "disk", "memory"} <= topics
    assert not Path("wsl-runs").exists(), "looking must not create anything"


def test_every_finding_is_one_line() -> None:
    lines = call().output.splitlines()
    assert all(re.match(r"(ok|note|problem)  ", line) for line in lines[:-1])
    assert lines[-1] == "No problem found."


def test_quiet_leaves_out_what_is_well() -> None:
    assert all(not line.startswith("ok") for line in call("--quiet").output.splitlines())


def test_a_store_that_does_not_answer_is_a_problem_with_its_remedy_and_without_its_password() -> None:
    found = call("--tracking-uri", "http://user:secret@127.0.0.1:9")
    assert found.exit_code == 1
    (line,) = [line for line in found.output.splitlines() if line.startswith("problem")]
    assert "no tracking server answers" in line
    assert "--tracking-uri" in line
    assert "secret" not in found.output


def test_the_embedded_database_is_described_with_its_schema(tmp_path: Path) -> None:
    from wsl_toolkit.runs.tracking.store import Tracker, default_uri

    Tracker(default_uri(), "wsl-digits")
    (found,) = findings("tracking")
    with sqlite3.connect(tmp_path / "wsl-runs" / "mlflow.db") as database:
        (version,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
    assert found.status == OK
    assert f"schema {version}" in found.text
    assert "2 experiments" in found.text
    with sqlite3.connect(tmp_path / "wsl-runs" / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'ancient'")
    (broken,) = findings("tracking")
    assert broken.status == PROBLEM
    assert "mlflow db upgrade" in broken.fix


def test_a_file_that_is_no_database_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database at all, but long enough to be taken for one" * 30)
    (found,) = findings("tracking", f"sqlite:///{tmp_path / 'x.db'}")
    assert found.status == PROBLEM


def test_a_package_that_is_missing_or_too_old_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["torch>=999", "no-such-package>=1", "numpy>=1"]
    monkeypatch.setattr(metadata, "requires", lambda name: wanted)
    found = {finding.text: finding for finding in findings("packages") if finding.status == PROBLEM}
    assert {finding.fix for finding in found.values()} == {
        "pip install 'torch>=999'",
        "pip install 'no-such-package>=1'",
    }


def test_a_broken_plugin_is_a_problem() -> None:
    point = metadata.EntryPoint(name="mine", value="no_such_module", group="wsl_toolkit")
    (found,) = [f for f in examine(loading.load([point]), Path("data"), None) if f.status == PROBLEM]
    assert found.topic == "plugins"
    assert "no_such_module" in found.text
    assert "WSL_DISABLE_PLUGINS" in found.fix


def test_data_that_is_there_is_listed_and_a_wrong_directory_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d" / "MNIST" / "raw").mkdir(parents=True)
    (tmp_path / "d" / "pll").mkdir()
    (found,) = findings("data", data_dir=tmp_path / "d")
    assert "holds mnist" in found.text
    assert "also pll" in found.text
    monkeypatch.setenv("WSL_DATA_DIR", str(tmp_path / "gone"))
    (gone,) = findings("data", data_dir=tmp_path / "gone")
    assert gone.status == PROBLEM


def test_a_full_disk_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, 10**6))
    (found,) = findings("disk")
    assert found.status == PROBLEM
    assert "make room" in found.fix


def test_a_misspelt_variable_is_noted_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSL_DATADIR", "/x")
    (found,) = findings("environment")
    assert "WSL_DATA_DIR" in found.fix


def test_the_variables_that_are_known_are_those_that_the_code_reads() -> None:
    read = set()
    for path in [*(ROOT / "wsl_toolkit").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        read |= set(re.findall(r'(?:environ\.get\(|environ\[|envvar=|getenv\()\s*"(WSL_[A-Z_]+)"', text))
    assert read <= set(doctor.VARIABLES), read - set(doctor.VARIABLES)


def test_a_check_that_fails_itself_is_reported_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> int:
        raise RuntimeError("no such counter")

    monkeypatch.setattr(doctor, "free_memory", broken)
    assert [f.text for f in findings("memory")] == ["RuntimeError: no such counter"]
    assert findings("plugins")
