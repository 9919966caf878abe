"""Full disks, read-only folders, too little memory, losses that are no numbers: one clear line, and a way on."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_tools import Started, folders, start_wsl, status, wsl, wsl_here
from test_kills import ARGUMENTS, assert_same_run

from tests.waiting import until
from wsl_toolkit.errors import ResourceError
from wsl_toolkit.training.checkpoints import Checkpoints, Place, read


def mounted(folder: Path, megabytes: int) -> bool:
    """Put a small file system of its own on a folder, where this user may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 60 MB: a tmpfs, or a limit on the size of files where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    is_disk = mounted(folder, 60)
    yield folder
    if is_disk:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave not a byte."""
    filler = folder / "filler"
    with filler.open("wb") as file:
        block = b"\0" * 2**20
        try:
            while len(block) and shutil.disk_usage(folder).free:
                try:
                    file.write(block)
                    file.flush()
                except OSError:
                    block = block[: len(block) // 2]
        except OSError:
            pass
    return filler


@pytest.mark.system
def test_a_full_disk_ends_a_run_with_one_line_and_it_goes_on_when_there_is_room(
    small_disk: Path, first_home: Path, reference: Path
) -> None:
    if not os.path.ismount(small_disk):
        check_limited_files(small_disk)
        return
    shutil.copytree(first_home, small_disk / "wsl-runs")
    started = start_wsl(small_disk, *ARGUMENTS, "--checkpoint-every", "1")
    until(lambda: folders(small_disk) and len(folders(small_disk)[0].records()) >= 3)
    filler = fill(small_disk)
    code = started.wait()
    said = started.said
    filler.unlink()
    assert code == 5, said
    assert "Traceback" not in said
    (folder,) = folders(small_disk)
    for path in (folder.path / "checkpoints").glob("epoch-*.pt"):
        read(path)
    wsl(small_disk, "run", "--resume", folder.run_id, "--quiet")
    assert_same_run(small_disk, reference)


def check_limited_files(folder: Path) -> None:
    """The same error from a limit on the size of files, where no disk can be mounted."""
    started = Started(folder, save_beyond_limit, str(folder))
    assert started.wait() == 0, started.said


def save_beyond_limit(folder: str) -> None:
    import signal

    import torch

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    kept = Checkpoints(Path(folder))
    kept.save(Place(epoch=1), {"small": torch.zeros(10)})
    with pytest.raises(ResourceError, match="cannot be written"):
        kept.save(Place(epoch=2), {"large": torch.zeros(100_000)})
    assert kept.newest() is not None
    assert len(list(Path(folder).glob("epoch-*.pt"))) == 1


def test_a_checkpoint_beyond_the_limit_leaves_the_last_one_alone(tmp_path: Path) -> None:
    check_limited_files(tmp_path)


def test_a_read_only_directory_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir()
    if mounted(folder, 1):
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    else:
        folder.chmod(0o555)
    try:
        started = Started(tmp_path, run_in, str(folder), [*ARGUMENTS])
        code = started.wait()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
    assert code == 3, started.said
    assert "cannot be written" in started.said
    assert started.said.count("\n") == 1


def run_in(folder: str, arguments: list[str]) -> None:
    from wsl_toolkit.cli import main

    os.chdir(folder)
    main(arguments)


def run_with_little_memory(arguments: list[str]) -> None:
    from wsl_toolkit.cli import main

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
    main(arguments)


def test_too_little_memory_is_one_line_that_says_what_to_lower(workspace: Path) -> None:
    arguments = [*ARGUMENTS, "--backbone-widths", "40000,40000"]
    started = Started(workspace, run_with_little_memory, arguments)
    assert started.wait() == 5, started.said
    assert "Error: out of memory" in started.said
    assert "lower --batch-size (now 64), or choose a smaller --backbone" in started.said
    assert "Traceback" not in started.said
    (folder,) = folders(workspace)
    assert status(workspace, folder.run_id) == "FAILED"
    assert folder.fact("message").startswith("out of memory")


def test_too_little_memory_for_a_frozen_network_is_one_line_too(workspace: Path) -> None:
    arguments = ["features", "digits", "--backbone", "mlp", "--backbone-widths", "40000,40000"]
    started = Started(workspace, run_with_little_memory, arguments)
    assert started.wait() == 5, started.said
    assert "choose a smaller --backbone or less data" in started.said
    assert "Traceback" not in started.said


def test_a_loss_that_is_no_number_stops_the_run_names_the_step_and_keeps_the_last_good_checkpoint(
    workspace: Path,
) -> None:
    arguments = ("run", "--backbone", "linear", "--estimator", "ppl", "--epochs", "4", "--quiet", "--lr", "3e37")
    said = wsl_here(workspace, *arguments, "--checkpoint-every", "1", code=4)
    assert re.search(r"the loss became (nan|inf) at step \d+ of epoch 1: .*lower --lr", said)
    (folder,) = folders(workspace)
    assert status(workspace, folder.run_id) == "FAILED"
    assert "at step" in folder.fact("message")
    kept = Checkpoints(folder.path / "checkpoints").newest()
    assert kept is None or all(
        record["metrics"]["train/risk"] == record["metrics"]["train/risk"] for record in kept["records"]
    )
    said = wsl_here(workspace, *arguments, "--on-nan", "continue")
    assert said.count("the run goes on because of --on-nan continue") == 1
    assert [status(workspace, folder.run_id) for folder in folders(workspace)] == ["FAILED", "FINISHED"]
    assert len(folders(workspace)[1].records()) == 4
