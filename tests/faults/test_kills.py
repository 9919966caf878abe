"""Runs that are killed without warning, at moments drawn from a seed, go on to the same bits."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
import torch
from fault_tools import Started, final_state, folders, history, start_wsl, status, wsl

from tests.waiting import until

EPOCHS = 30
ARGUMENTS = (
    "run",
    "--estimator",
    "ppl",
    "--backbone",
    "mlp",
    "--epochs",
    str(EPOCHS),
    "--scheduler",
    "cosine",
    "--quiet",
)


def same(one: object, other: object) -> bool:
    """Whether nested values agree to the last bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(same, one, other))
    return one == other


def assert_same_run(workspace: Path, reference: Path, epochs: int = EPOCHS) -> None:
    """Demand the reference's model, confidences, optimiser, random streams and metrics, on disk and in the store."""
    (folder,), (expected,) = folders(workspace), folders(reference)
    found_state, expected_state = final_state(folder), final_state(expected)
    assert "risk" in found_state["trainer"]
    assert any("row_" in name for name in found_state["trainer"]["risk"]), "there must be confidences to compare"
    assert same(found_state["trainer"], expected_state["trainer"])
    metrics = [timed.record.metrics for timed in folder.records()]
    assert metrics == [timed.record.metrics for timed in expected.records()]
    assert len(metrics) == epochs
    assert history(workspace, folder.run_id) == history(reference, expected.run_id)
    assert status(workspace, folder.run_id) == "FINISHED"


def wait_for_moment(workspace: Path, started: Started, epochs: int, seconds: float) -> None:
    """Wait until a run has so many epochs on disk (or any trace at all), and so many seconds more, or has ended."""

    def reached() -> bool:
        found = folders(workspace)
        return not started.process.is_alive() or (bool(found) and len(found[0].records()) >= epochs)

    until(reached)
    time.sleep(seconds)


def killed_run(workspace: Path, dice: random.Random) -> int:
    """Start a run, kill it once or twice at random moments, resume it to its end; return how often it was killed."""
    started = start_wsl(workspace, *ARGUMENTS, "--checkpoint-every", str(dice.choice([1, 2, 7])))
    kills = 0
    for _ in range(dice.choice([1, 1, 2])):
        # Either a moment of the training, or any moment after the run's first trace on disk.
        epochs = dice.choice([0, dice.randrange(1, EPOCHS)])
        wait_for_moment(workspace, started, epochs, dice.uniform(0, 0.05 if epochs else 0.5))
        kills += started.process.is_alive()
        started.kill()
        if folders(workspace)[0].result() is not None:
            break
        started = start_wsl(workspace, "run", "--resume", str(folders(workspace)[0].path), "--quiet")
    code = started.wait()
    assert code in (0, -signal.SIGKILL), started.said
    if code:
        wsl(workspace, "sync")  # killed after its result was complete: nothing to resume, only to be told
    return kills


@pytest.mark.system
@pytest.mark.parametrize("seed", [1, 2])
def test_runs_killed_at_random_moments_go_on_to_the_same_bits(seed: int, workspace: Path, reference: Path) -> None:
    assert killed_run(workspace, random.Random(seed)) >= 1
    assert_same_run(workspace, reference)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_fifty_runs_killed_at_random_moments_go_on_to_the_same_bits(
    seed: int, workspace: Path, reference: Path
) -> None:
    assert killed_run(workspace, random.Random(seed)) >= 1
    assert_same_run(workspace, reference)
