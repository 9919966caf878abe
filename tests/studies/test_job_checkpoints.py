"""Jobs of a study leave checkpoints: one that was killed goes on from them, in the same stack, to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from torch import Tensor

from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.training.engine import Loop
from wsl_toolkit.training.stacking import grouping

EPOCHS, KILLED_IN = 60, 40
STARTED = f"""
import os, signal
from wsl_toolkit.training import checkpoints
from wsl_toolkit.training.engine import Loop

checkpoints.SECONDS_APART, checkpoints.SHARE_OF_TIME = 0.0, float("inf")
run, begun = Loop.run, []

def killed(self, *args):
    begun.append(1)
    if len(begun) == {KILLED_IN}:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(self, *args)

Loop.run = killed
from wsl_toolkit.cli import main
main(["study", "run", "study.toml", "--executor", "inline", "--quiet"])
"""
"""A study with a checkpoint after every epoch, killed in the middle of its first stack however fast that trains."""


@pytest.fixture
def long(small: dict[str, Any]) -> dict[str, Any]:
    """One method whose two searched points are one stack, and whose two trials are another."""
    return {
        **small,
        "name": "long",
        "training": {"epochs": EPOCHS, "batch_size": 64, "validation": 0.1},
        "search": {"epochs": EPOCHS, "space": {"lr": [0.01, 0.1]}},
        "methods": [{"estimator": "ppl", "label": "PPL"}],
    }


@pytest.fixture
def epochs_trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs that the loop has run from now on, of stacks or of single models."""
    run, seen = Loop.run, []

    def counted(self: Loop, order: Tensor, epoch: int, *rest: Any) -> Any:
        seen.append(epoch)
        return run(self, order, epoch, *rest)

    monkeypatch.setattr(Loop, "run", counted)
    return seen


def histories(states: list[CellState]) -> list[dict[str, list[float]]]:
    searched = [
        result.history for state in states for s in state.searches for each in s.scored for result in each.results
    ]
    return searched + [result.history for state in states for result in state.finished]


@pytest.mark.system
def test_a_study_killed_in_the_middle_of_a_job_goes_on_from_its_last_checkpoint_to_the_same_bits(
    long: dict[str, Any], run_in: Callable[..., list[CellState]], tmp_path: Path, epochs_trained: list[int]
) -> None:
    expected = histories(run_in(long, home=tmp_path / "undisturbed" / "wsl-runs"))
    whole = len(epochs_trained)
    assert whole == 2 * EPOCHS, "two stacks, each trained once"
    epochs_trained.clear()

    (tmp_path / "study.toml").write_text(tomli_w.dumps(long))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = subprocess.run([sys.executable, "-c", STARTED], cwd=tmp_path, env=environment, timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL
    home = tmp_path / "wsl-runs"
    assert len(list((home / "jobs" / "checkpoints").glob("*/epoch-*.pt"))) >= 2, "one of each model of the stack"
    assert not list((home / "jobs").glob("*.json")), "it should have been killed in the middle of the first task"

    resumed = histories(run_in(long, home=home))
    assert resumed == expected
    assert len(epochs_trained) == whole - (KILLED_IN - 1), (
        "the epochs before the last checkpoint were not trained again"
    )
    assert not (home / "jobs" / "checkpoints").exists() or not list((home / "jobs" / "checkpoints").iterdir())
    assert not list((home / "studies" / "long" / "tasks").glob("*.json"))


def test_a_stack_of_which_some_results_are_there_is_begun_again_as_it_was(
    long: dict[str, Any], run_in: Callable[..., list[CellState]], tmp_path: Path
) -> None:
    """As after a kill while the results of a stack were being written: alone, the last bits would be others."""
    from wsl_toolkit.studies.started_tasks import StartedTasks
    from wsl_toolkit.studies.tasks import Task

    long["training"]["epochs"] = long["search"]["epochs"] = 3
    long["search"]["space"] = {"lr": [0.01, 0.03, 0.1]}
    states = run_in(long)
    expected = histories(states)
    jobs = states[0].searches[0].jobs
    files = [next((tmp_path / "jobs").glob(f"{job.id}.*.json")) for job in jobs]
    for file in files[1:]:
        file.unlink()
    task = Task(jobs=jobs, data_dir=tmp_path)
    StartedTasks(tmp_path / "studies" / "long" / "tasks", tmp_path / "jobs" / "checkpoints").add(task)
    kept = files[0].read_bytes()
    again = run_in(long)
    assert histories(again) == expected
    assert {r.plan["stacked"] for s in again[0].searches for each in s.scored for r in each.results} == {3}
    assert files[0].read_bytes() == kept


def test_the_last_family_of_cells_is_one_stack_too_and_no_record_of_a_task_is_left(
    small: dict[str, Any],
    run_in: Callable[..., list[CellState]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is stacked follows from the results alone, so that a study killed anywhere goes on in the same stacks."""
    from wsl_toolkit.studies.started_tasks import StartedTasks
    from wsl_toolkit.studies.tasks import Task

    monkeypatch.setattr(grouping, "SMALL_INPUTS", 0)  # the digits are so small that one stack of all orders would do
    generators = [{"name": "mcl-skewed", "alpha": alpha} for alpha in (0.5, 0.8)]
    small["settings"] = [{"dataset": "digits", "generator": each, "backbone": "linear"} for each in generators]
    small["trials"] = 3
    states = run_in(small)
    # The two settings' trials of one seed share their batches; the three trials of one setting would be one stack.
    assert {result.plan["stacked"] for state in states for result in state.finished} == {2}
    # As after a kill between a task's last result and the removal of its record.
    started = StartedTasks(tmp_path / "studies" / "small" / "tasks", tmp_path / "jobs" / "checkpoints")
    started.add(Task(jobs=tuple(state.finished[0].job for state in states), data_dir=tmp_path))
    run_in(small)
    assert started.all() == []
