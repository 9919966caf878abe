"""Grid, random and tpe searches that are killed again and again mean one set of points and one table."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dying_study
import pytest
import tomli_w
from click.testing import CliRunner

from wsl_toolkit.cli import main
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.store import StudyFolder

pytestmark = pytest.mark.system

MOMENTS = (("epoch", "1"), ("result", "1"), ("result", "3"))
"""Within the first training, when its first result is written, and on the way from the search to the trials."""
SAMPLED = {"lr": {"low": 0.01, "high": 0.5, "log": True}, "weight_decay": [1e-4, 1e-2]}
SPACES: dict[str, Any] = {"grid": {"weight_decay": [1e-4, 1e-2], "lr": [0.01, 0.1]}, "random": SAMPLED, "tpe": SAMPLED}


def die(files: list[Path], home: Path) -> None:
    """Run all studies until each has killed itself, once for each moment; no finished run is done again."""
    moments = [word for moment in MOMENTS for word in moment]
    command = [sys.executable, dying_study.__file__, str(home), *map(str, files), "--", *moments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stderr
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [one["ended"] for one in told] == [[-signal.SIGKILL] * len(files)] * len(MOMENTS), ended.stderr
    for before, after in itertools.pairwise(told):
        assert before["results"].items() <= after["results"].items(), "a finished run was done again"
    assert len(told[0]["results"]) < len(told[-1]["results"])


def results(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "jobs").glob("*.json")}


def wsl(*arguments: str) -> str:
    done = CliRunner().invoke(main, [*arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_searches_killed_at_three_moments_have_one_set_of_points_and_one_table(
    small: dict[str, Any],
    run_in: Callable[..., list[CellState]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "wsl-runs"
    files, wanted = {}, {}
    for strategy, space in SPACES.items():
        search = {"strategy": strategy, "points": 4, "batch": 2, "epochs": 2, "space": space}
        described = {**small, "name": strategy, "seed": len(files), "search": search, "methods": ["cc"]}
        files[strategy] = tmp_path / f"{strategy}.toml"
        files[strategy].write_text(tomli_w.dumps(described))
        (undisturbed,) = run_in(from_dict(described, "test"), home=tmp_path / "undisturbed")
        wanted[strategy] = {job.id for job in undisturbed.all_jobs()}
        assert len(wanted[strategy]) == 4 + 2
    die(list(files.values()), home)
    for strategy, file in files.items():
        run_in(StudyFolder(home, strategy).read_study(), home=home)  # as `wsl study resume` does
        computed = results(home)
        standing = wsl("study", "status", strategy, "--json")
        cells = json.loads(standing)["cells"]
        assert [(cell["state"], cell["done"], cell["planned"]) for cell in cells] == [("complete", 6, 6)]
        table = wsl("report", strategy, "--format", "markdown")
        plan = json.loads(wsl("study", "run", str(file), "--dry-run", "--json"))
        assert (plan["kept"], plan["to_compute"], plan["unused"], plan["changes"]) == (6, 0, 0, [])
        run_in(read_study(str(file)), home=home)
        assert results(home) == computed
        assert wsl("report", strategy, "--format", "markdown") == table
        assert wsl("study", "status", strategy, "--json") == standing
    assert {name.partition(".")[0] for name in results(home)} == set.union(*wanted.values())
