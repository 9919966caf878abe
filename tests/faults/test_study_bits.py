"""Studies that are killed without warning, at moments drawn from a seed, and resumed: the same points and tables."""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner
from fault_tools import Started

from tests.waiting import until
from wsl_toolkit.system.json_files import CHECKSUM

SPACES: dict[str, Any] = {
    "grid": {"lr": [0.01, 0.1], "weight_decay": [1e-4, 1e-2]},
    "tpe": {"lr": {"low": 0.01, "high": 0.5, "log": True}, "weight_decay": [1e-4, 1e-2]},
}
KINDS = tuple(itertools.product(SPACES, ("stacked", "one by one")))
JOBS = 2 * 2 * (4 + 2)
TIMES = ("seconds", "ended_at", CHECKSUM)
"""The times of a result, and the checksum, which counts them in."""


def description(strategy: str, way: str) -> dict[str, Any]:
    """Two settings whose trials meet in one stack, two methods, four points and two trials; Adam is never stacked."""
    return {
        "name": "killed",
        "trials": 2,
        "training": {
            "epochs": 3,
            "batch_size": 128,
            "validation": 0.1,
            "optimizer": "sgd" if way == "stacked" else "adam",
        },
        "search": {"strategy": strategy, "points": 4, "batch": 2, "epochs": 2, "space": SPACES[strategy]},
        "settings": [
            {"dataset": "digits", "generator": {"name": "mcl-skewed", "alpha": alpha}, "backbone": "linear"}
            for alpha in (0.5, 0.8)
        ],
        "methods": ["ppl", "cc"],
    }


def run_study_here(seconds_apart: float) -> None:
    """Run or resume the study of the working directory, with checkpoints that far apart."""
    from wsl_toolkit.cli.study_progress import SilentStudy
    from wsl_toolkit.plugins.loading import load_plugins
    from wsl_toolkit.studies.driver import check_study, run_study
    from wsl_toolkit.studies.executor import Inline
    from wsl_toolkit.studies.reading import read_study
    from wsl_toolkit.studies.store import StudyFolder
    from wsl_toolkit.training import checkpoints

    checkpoints.SECONDS_APART, checkpoints.SHARE_OF_TIME = seconds_apart, 1.0
    home, registry, study = Path("wsl-runs"), load_plugins().registry, read_study("study.toml")
    folder = StudyFolder(home, study.name)
    folder.create()
    with folder.lock():
        check_study(study, folder, registry, home)
        folder.write_study(study)
        run_study(study, folder, registry, Inline(), SilentStudy(), None, data_dir=home)


def start(place: Path, kind: tuple[str, str], seconds_apart: float = 30.0) -> Started:
    place.mkdir(exist_ok=True)
    (place / "study.toml").write_text(tomli_w.dumps(description(*kind)))
    return Started(place, run_study_here, seconds_apart)


def results(place: Path) -> dict[str, Any]:
    """Every job's result without the times, which are no result; text, in which NaN equals NaN.

    Where the plan came from is no result, either: the plan of a training that goes on is the recorded one.
    """
    found = {}
    for path in (place / "wsl-runs" / "jobs").glob("*.json"):
        values = json.loads(path.read_text())
        assert values["plan"].pop("source") in ("short", "recorded")
        found[path.stem] = json.dumps({key: value for key, value in values.items() if key not in TIMES})
    return found


def tables(place: Path) -> Iterator[str]:
    """The study's tables as `wsl report` writes them; times again are no result."""
    from wsl_toolkit.cli import main

    before = Path.cwd()
    os.chdir(place)
    try:
        for form in ("markdown", "csv", "latex"):
            done = CliRunner().invoke(main, ["report", "killed", "--format", form])
            assert done.exit_code == 0, done.output
            yield done.stdout
    finally:
        os.chdir(before)


@functools.cache
def undisturbed(kind: tuple[str, str]) -> tuple[dict[str, Any], list[str]]:
    """What a study of a kind comes to that nobody disturbs."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "undisturbed"
        started = start(place, kind)
        assert started.wait() == 0, started.said
        return results(place), list(tables(place))


def killed_study(place: Path, kind: tuple[str, str], dice: random.Random) -> int:
    """Start a study, kill it one to three times, resume it to its end; return how often it was killed."""
    seconds_apart, kills, done = dice.choice([0.0, 30.0]), 0, -1
    for _ in range(dice.choice([1, 2, 3])):
        started = start(place, kind, seconds_apart)
        goal = min(JOBS - 1, max(done, 0) + dice.randrange(JOBS // 2))
        until(lambda started=started, goal=goal: len(results(place)) >= goal or not started.process.is_alive())
        time.sleep(dice.uniform(0, 0.2))
        kills += started.process.is_alive()
        started.kill()
        done = len(results(place))
    started = start(place, kind, seconds_apart)
    assert started.wait() == 0, started.said
    return kills


def check_killed_study(seed: int, place: Path) -> None:
    kind = KINDS[seed % len(KINDS)]
    wanted, expected_tables = undisturbed(kind)
    assert len(wanted) == JOBS
    assert killed_study(place / "killed", kind, random.Random(seed)) >= 1
    found = results(place / "killed")
    assert sorted(found) == sorted(wanted), "other points were tried"
    assert {job for job in wanted if found[job] != wanted[job]} == set()
    assert list(tables(place / "killed")) == expected_tables


@pytest.mark.system
@pytest.mark.parametrize("seed", [2, 4])
def test_a_study_killed_at_random_and_resumed_has_the_same_points_and_tables_to_the_last_byte(
    seed: int, tmp_path: Path
) -> None:
    check_killed_study(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_fifty_studies_killed_at_random_and_resumed_have_the_same_points_and_tables(seed: int, tmp_path: Path) -> None:
    check_killed_study(seed, tmp_path)
