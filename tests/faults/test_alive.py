"""Who works on a run is decided by a lock that its process holds, not by a process number."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest
from fault_tools import Started

from tests.waiting import until
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.runs.folder import KILLED, RUNNING, RunFolder, dead_folders
from wsl_toolkit.system.processes import FolderLock, Process


def work_on(home: str, run_id: str, seconds: float) -> None:
    """Enter a run, say so, and stay there."""
    folder = RunFolder(Path(home), run_id)
    try:
        folder.enter()
    except ConfigError:
        return
    (folder.path / f"entered-{time.monotonic_ns()}").touch()
    time.sleep(seconds)


def try_to_work_on(home: str, run_id: str, together: int) -> None:
    """Try to enter a run, say so, and who is in stays until all have tried."""
    folder = RunFolder(Path(home), run_id)
    with contextlib.suppress(ConfigError):
        folder.enter()
        (Path(home) / f"entered-{os.getpid()}").touch()
    (Path(home) / f"tried-{os.getpid()}").touch()
    until(lambda: len(list(Path(home).glob("tried-*"))) == together)


def started_folder(home: Path) -> RunFolder:
    folder = RunFolder.new(home)
    folder.note(started=1, status=RUNNING)
    return folder


def test_a_run_whose_process_number_means_nothing_here_is_alive_as_long_as_its_lock_is_held(tmp_path: Path) -> None:
    folder = started_folder(tmp_path)
    worker = Started(tmp_path, work_on, str(tmp_path), folder.run_id, 600)
    until(lambda: list(folder.path.glob("entered-*")))
    # As another container with this host's name would have written it.
    foreign = attrs.evolve(Process.current(), pid=2**22 + 1, began="elsewhere", boot="elsewhere")
    (folder.path / "process.json").write_text(json.dumps(attrs.asdict(foreign)))
    assert list(dead_folders(tmp_path)) == []
    with pytest.raises(ConfigError, match="is still at work"):
        folder.enter()
    assert not folder.leave_for_dead()
    worker.kill()
    (dead,) = dead_folders(tmp_path)
    assert dead.leave_for_dead()
    assert dead.fact("status") == KILLED
    assert "exited without recording a status" in dead.fact("message")
    assert list(dead_folders(tmp_path)) == []


def test_of_many_processes_that_enter_a_run_together_one_gets_in(tmp_path: Path) -> None:
    folder = started_folder(tmp_path)
    workers = [Started(tmp_path, try_to_work_on, str(tmp_path), folder.run_id, 8) for _ in range(8)]
    assert [worker.wait() for worker in workers] == [0] * 8
    assert len(list(tmp_path.glob("entered-*"))) == 1


def test_a_lock_moves_with_its_folder(tmp_path: Path) -> None:
    folder = started_folder(tmp_path)
    folder.enter()
    folder.take_id("0123")
    assert FolderLock.is_held(folder.path)
    with pytest.raises(ConfigError, match="is still at work"):
        RunFolder(tmp_path, "0123").enter()
    folder.leave(KILLED)
    assert not FolderLock.is_held(folder.path)
    RunFolder(tmp_path, "0123").enter()


def test_a_process_of_release_0_1_which_held_no_lock_is_known_by_its_number(tmp_path: Path) -> None:
    folder = started_folder(tmp_path)
    old = attrs.asdict(attrs.evolve(Process.current(), locks=False))
    del old["locks"]
    (folder.path / "process.json").write_text(json.dumps(old))
    assert list(dead_folders(tmp_path)) == []
    (folder.path / "process.json").write_text(json.dumps({**old, "began": "long ago"}))
    assert [dead.run_id for dead in dead_folders(tmp_path)] == [folder.run_id]


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-pf", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs the right to make a PID namespace")
def test_a_run_in_another_pid_namespace_is_not_taken_for_dead(tmp_path: Path) -> None:
    folder = started_folder(tmp_path)
    code = (
        f"import time; from pathlib import Path; from wsl_toolkit.runs.folder import RunFolder; "
        f"folder = RunFolder(Path({str(tmp_path)!r}), {folder.run_id!r}); folder.enter(); "
        "(folder.path / 'entered').touch(); time.sleep(600)"
    )
    worker = subprocess.Popen(["unshare", "-pf", "--kill-child", sys.executable, "-c", code])
    try:
        until(lambda: (folder.path / "entered").exists() or worker.poll() is not None)
        assert worker.poll() is None
        assert list(dead_folders(tmp_path)) == []
        with pytest.raises(ConfigError, match="is still at work"):
            folder.enter()
    finally:
        worker.kill()
        worker.wait()
    until(lambda: list(dead_folders(tmp_path)))
