"""Ctrl-C, SIGTERM, deaths, damaged checkpoints, changed data: what a user does next works or is explained."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fault_tools import Started, folders, history, start_wsl, status, statuses, wsl, wsl_here
from test_kills import ARGUMENTS, EPOCHS, assert_same_run

from tests.waiting import until
from wsl_toolkit.errors import CheckpointError
from wsl_toolkit.runs.folder import RunFolder
from wsl_toolkit.training.checkpoints import Checkpoints, Place, read


def run_until(workspace: Path, epochs: int, *arguments: str) -> Started:
    """Start a run and wait until it has so many epochs on disk."""
    started = start_wsl(workspace, *arguments)
    until(lambda: any(len(folder.records()) >= epochs for folder in folders(workspace)) or started.process.exitcode)
    return started


@pytest.mark.parametrize(("number", "code", "who"), [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")])
def test_a_stopped_run_says_killed_leaves_a_checkpoint_and_goes_on_to_the_same_bits(
    number: int, code: int, who: str, workspace: Path, reference: Path
) -> None:
    started = run_until(workspace, 3, *ARGUMENTS)
    started.send(number)
    assert started.wait() == code
    (folder,) = folders(workspace)
    assert f"stopped by {who} at epoch" in started.said
    assert f"wsl run --resume {folder.run_id}" in started.said
    assert "Traceback" not in started.said
    assert status(workspace, folder.run_id) == "KILLED"
    saved = Checkpoints(folder.path / "checkpoints").newest()
    assert saved is not None
    assert 3 <= saved["epoch"] < EPOCHS
    said = wsl(workspace, "run", "--resume", folder.run_id, "--quiet")
    assert f"going on from epoch {saved['epoch']}" in said
    assert_same_run(workspace, reference)


@pytest.mark.system
def test_a_parent_goes_on_with_the_trials_that_were_interrupted(
    workspace: Path, reference: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    undisturbed = tmp_path_factory.mktemp("undisturbed")
    started = run_until(workspace, 5, *ARGUMENTS, "--trials", "2")
    started.kill()
    parent, *children = folders(workspace)  # two trials that are trained as one stack
    said = wsl(workspace, "run", "--resume", parent.run_id, "--json")
    for child in children:
        assert f"run {child.run_id} is marked KILLED" in said
    parent, first, second = folders(workspace)
    assert [first.run_id, second.run_id] == [child.run_id for child in children]
    wsl(undisturbed, *ARGUMENTS, "--trials", "2")
    _, *expected = folders(undisturbed)
    for trial, whole in zip((first, second), expected, strict=True):
        assert len(trial.records()) == EPOCHS
        assert [t.record.metrics for t in trial.records()] == [t.record.metrics for t in whole.records()]
        found = history(workspace, trial.run_id)
        assert found == {key: values for key, values in history(undisturbed, whole.run_id).items() if key in found}
    # The first trial is the reference's run, which was trained alone: the same seed, the same up to rounding at first,
    # by which one of the 144 examples that are held out may be counted otherwise.
    (alone,) = folders(reference)
    begun = alone.records()[0].record.metrics
    for name, value in first.records()[0].record.metrics.items():
        counted = name.endswith(("accuracy", "covering_rate"))
        assert value == pytest.approx(begun[name], rel=1e-3, abs=1.01 / 144 if counted else 1e-3), name
    means = history(workspace, parent.run_id)
    finals = [folder.records()[-1].record.metrics["test/accuracy"] for folder in (first, second)]
    assert means["test/accuracy_mean"] == [(EPOCHS, pytest.approx(sum(finals) / 2))]
    assert statuses(workspace) == ["FINISHED"] * 3


@pytest.mark.system
def test_a_run_whose_process_died_is_marked_by_the_next_command_and_a_living_one_is_not(workspace: Path) -> None:
    dead = run_until(workspace, 1, *ARGUMENTS)
    dead.kill()
    alive = start_wsl(workspace, *ARGUMENTS)
    # Listed once: a run that is given its id at this very moment is missing from a list.
    until(lambda: len(found := folders(workspace)) == 2 and found[1].records())
    alive.send(signal.SIGSTOP)
    try:
        assert sorted(statuses(workspace)) in (["KILLED", "RUNNING"], ["RUNNING", "RUNNING"])
        first, second = folders(workspace)
        said = wsl(workspace, "sync")  # `alive` has most likely marked it by now; if not, this does
        assert status(workspace, first.run_id) == "KILLED"
        assert "exited without recording a status" in folders(workspace)[0].fact("message")
        assert status(workspace, second.run_id) == "RUNNING"
        assert second.run_id not in said
        said = wsl(workspace, "run", "--resume", second.run_id, code=2)
        assert "is still at work" in said
    finally:
        alive.send(signal.SIGCONT)
        alive.kill()


@pytest.mark.system
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_says_so(workspace: Path, reference: Path) -> None:
    started = run_until(workspace, 7, *ARGUMENTS, "--checkpoint-every", "3")
    started.kill()
    (folder,) = folders(workspace)
    kept = sorted((folder.path / "checkpoints").glob("*.pt"))
    assert len(kept) == 2
    content = bytearray(kept[-1].read_bytes())
    content[len(content) // 2] ^= 1
    kept[-1].write_bytes(content)
    said = wsl(workspace, "run", "--resume", folder.run_id, "--quiet")
    assert "is damaged: its content does not match its checksum; going back to the one before" in said
    assert "going on from epoch" in said
    assert_same_run(workspace, reference)


def test_data_that_changed_since_the_run_began_is_an_error(workspace: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(300, 5)), "y": rng.integers(0, 3, 300)}
    np.savez(workspace / "mine.npz", **arrays)
    arguments = ("run", "--dataset", "npz", "--dataset-path", "mine.npz", "--epochs", "100000", "--quiet")
    started = run_until(workspace, 2, *arguments)
    started.send(signal.SIGTERM)
    assert started.wait() == 143
    (folder,) = folders(workspace)
    arrays["x"][7, 2] += 1e-6
    np.savez(workspace / "mine.npz", **arrays)
    said = wsl(workspace, "run", "--resume", folder.run_id, code=2)
    assert f"the data of mine changed since run {folder.run_id} began" in said
    (workspace / "mine.npz").write_bytes((workspace / "mine.npz").read_bytes()[:-200])
    said = wsl(workspace, "run", "--resume", folder.run_id, code=2)
    assert "mine.npz" in said
    assert status(workspace, folder.run_id) in ("FAILED", "KILLED")


def test_resuming_what_cannot_be_resumed_is_explained(reference: Path) -> None:
    (folder,) = folders(reference)
    for argument, expected in [
        (folder.run_id, "is complete: there is nothing to resume"),
        ("nobody", "there is no run 'nobody'"),
        ("../../etc", "there is no run '../../etc'"),
    ]:
        assert expected in wsl_here(reference, "run", "--resume", argument, code=2)
    assert "leave --lr out" in wsl_here(reference, "run", "--resume", folder.run_id, "--lr", "0.1", code=2)


# ----------------------------------------------------------------- checkpoints


def save_for_ever(folder: str) -> None:
    kept = Checkpoints(Path(folder))
    for epoch in range(10**6):
        kept.save(Place(epoch=epoch), {"epoch": epoch, "weights": torch.full((200_000,), float(epoch))})


def test_a_process_killed_while_it_saves_leaves_whole_checkpoints_only(tmp_path: Path) -> None:
    dice = random.Random(4)
    for number in range(8):
        folder = tmp_path / str(number)
        started = Started(tmp_path, save_for_ever, str(folder))
        until(lambda folder=folder: list(folder.glob("epoch-*.pt")))
        time.sleep(dice.uniform(0, 0.2))
        started.kill()
        for path in folder.glob("epoch-*.pt"):
            assert bool((read(path)["weights"] == read(path)["epoch"]).all())
        assert len(list(folder.glob("epoch-*.pt"))) <= 3  # two, and perhaps one more that is about to go
        Checkpoints(folder).save(Place(epoch=10**7), {})
        assert len(list(folder.iterdir())) == 2, "what was left half-written is swept away by the next one"


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    import hashlib
    import pickle

    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "harm",))  # type: ignore[return-value]

    path = tmp_path / "payload"
    torch.save({"state": Harmful()}, path, pickle_module=pickle)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    named = path.rename(tmp_path / f"epoch-00000001-step-00000000.{digest}.pt")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read(named)
    assert not (tmp_path / "harm").exists()


def test_records_cut_short_are_put_right(tmp_path: Path) -> None:
    from wsl_toolkit.training.engine import EpochRecord

    folder = RunFolder(tmp_path, "one")
    whole = [
        EpochRecord(epoch=e, metrics={"train/risk": float("nan") if e == 2 else 0.1 * e}, seconds=1.0)
        for e in (1, 2, 3)
    ]
    for record in whole:
        folder.append(record)
    path = folder.path / "records.jsonl"
    path.write_text(path.read_text()[:-9])
    assert [timed.record.epoch for timed in folder.records()] == [1, 2]
    times = [timed.time for timed in folder.records()]
    assert [timed.record.epoch for timed in folder.restore_records(whole)] == [1, 2, 3]
    assert [timed.time for timed in folder.records()][:2] == times
    folder.append(EpochRecord(epoch=4, metrics={}, seconds=0.0))
    assert len(folder.records()) == 4
