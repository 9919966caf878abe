"""What a killed process leaves behind is in nobody's way, and is removed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from fault_tools import Started, wsl

from wsl_toolkit.runs.tracking.run_folders import sweep
from wsl_toolkit.system.files import REMAINS_SECONDS, replacing
from wsl_toolkit.system.shared_work import SharedWork

NEW = ("plugin", "new", "mine", "--kind", "estimator")


def make_a_plugin_and_die() -> None:
    """Die when all files of the project are written and nothing is in its place yet."""
    import copier

    from wsl_toolkit.cli import main

    render = copier.run_copy

    def dying(*arguments: object, **options: object) -> None:
        render(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    copier.run_copy = dying
    main(list(NEW))


def test_a_plugin_new_that_was_killed_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    place = tmp_path / "here"
    place.mkdir()
    assert Started(place, make_a_plugin_and_die).wait() == -signal.SIGKILL
    assert [path.name for path in place.iterdir() if not path.name.startswith(".")] == []
    wsl(place, *NEW)
    assert (place / "wsl-mine" / "pyproject.toml").is_file()
    assert (place / "wsl-mine" / "tests").is_dir()


def write_and_die(path: str) -> None:
    with replacing(Path(path)) as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def test_temporary_files_of_killed_processes_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    places = [tmp_path / "jobs", tmp_path / "runs" / "one", tmp_path / "studies" / "small" / "tasks"]
    places.append(tmp_path / "features")
    for place in places:
        place.mkdir(parents=True)
        assert Started(tmp_path, write_and_die, str(place / "one.json")).wait() == -signal.SIGKILL
        (place / ".keep").touch()
        (place / "one.0123456789abcdef").touch()
    remains = [path for place in places for path in place.glob(".one.json.*")]
    assert len(remains) == len(places)
    sweep(tmp_path, print)
    assert all(path.exists() for path in remains), "somebody may still be writing them"
    for path in [*remains, *(place / name for place in places for name in (".keep", "one.0123456789abcdef"))]:
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - REMAINS_SECONDS - 1))
    sweep(tmp_path, print)
    assert [path for path in remains if path.exists()] == []
    assert all((place / ".keep").exists() and (place / "one.0123456789abcdef").exists() for place in places)


def lead_and_die(below: str) -> None:
    """Die while others, in jobs of SLURM, may still write into the folder."""
    work = SharedWork(Path(below), "study-")
    (work.folder / "messages").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)


def age(folder: Path) -> None:
    """Let the last sign of life in a folder be of more than an hour ago."""
    (sign,) = folder.glob("driver-is-alive")
    os.utime(sign, (0, sign.stat().st_mtime - REMAINS_SECONDS - 1))


def test_folders_of_slurm_jobs_are_swept_when_their_driver_is_dead_and_not_before(tmp_path: Path) -> None:
    below = tmp_path / "slurm"
    living, failed, well = (SharedWork(below, "study-") for _ in range(3))
    failed.close(keep=True)  # whose log the user was told of
    well.close(keep=False)
    assert not well.folder.exists()
    assert Started(tmp_path, lead_and_die, str(below)).wait() == -signal.SIGKILL
    (dead,) = set(below.iterdir()) - {living.folder, failed.folder}
    sweep(tmp_path, print)
    assert dead.exists(), "its workers may be at work for some minutes, and its driver on another machine"
    age(dead)
    age(living.folder)  # as if the disk had been too slow for any sign
    sweep(tmp_path, print)
    assert set(below.iterdir()) == {living.folder, failed.folder}
    living.close(keep=False)
