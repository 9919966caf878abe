"""Executors: the same results whoever does the work, and workers that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.executor import ATTEMPTS, Ended, Finished, LocalPool, make_executor
from wsl_toolkit.studies.jobs import Job, make_job
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.tasks import Task


def long_task(small: dict[str, Any], epochs: int, data_dir: Path) -> Task:
    cell = next(from_dict(small, "test").cells())
    job: Job = make_job(cell.config({}, seed=0, epochs=epochs, registry=load_plugins().registry), "trial")
    return Task(jobs=(job,), data_dir=data_dir)


def test_worker_processes_give_the_same_results_as_this_process(
    small: dict[str, Any], run_in: Callable[..., list[CellState]], tmp_path: Path
) -> None:
    inline = run_in(small, home=tmp_path / "inline")
    pooled = run_in(small, home=tmp_path / "pool", executor=LocalPool(2))
    for one, other in zip(inline, pooled, strict=True):
        assert one.points == other.points
        for mine, theirs in zip(one.finished, other.finished, strict=True):
            assert mine.job == theirs.job
            assert mine.candidates_hash == theirs.candidates_hash
            for name, values in mine.history.items():
                assert theirs.history[name] == pytest.approx(values, rel=1e-5)


@pytest.mark.system
def test_a_task_whose_worker_is_killed_is_done_by_another(small: dict[str, Any], tmp_path: Path) -> None:
    pool = LocalPool(1)
    try:
        first = pool.process_ids[0]
        task = long_task(small, 3, tmp_path)
        pool.submit(task)
        os.kill(first, signal.SIGKILL)
        found: list[Any] = []
        while not any(isinstance(event, Ended) for event in found):
            found += pool.events()
        assert pool.process_ids[0] != first
        assert found[-1] == Ended(task=task)
        assert [event.result.status for event in found if isinstance(event, Finished)] == ["finished"]
    finally:
        pool.close()


@pytest.mark.system
def test_a_task_that_kills_every_worker_is_given_up_with_a_reason(small: dict[str, Any], tmp_path: Path) -> None:
    pool = LocalPool(1)
    try:
        pool.submit(long_task(small, 100_000, tmp_path))
        shot: set[int] = set()
        ended: list[Ended] = []
        while not ended:
            for event in pool.events():
                if isinstance(event, Ended):
                    ended.append(event)
                elif (worker := pool.process_ids[0]) not in shot:
                    shot.add(worker)
                    os.kill(worker, signal.SIGKILL)
        assert len(shot) == ATTEMPTS
        assert ended[0].error is not None
        assert "signal 9" in ended[0].error
        assert pool.free == 1
    finally:
        pool.close()


@pytest.mark.system
def test_workers_end_when_their_driver_is_killed(tmp_path: Path) -> None:
    code = (
        "import time\nfrom wsl_toolkit.studies.executor import LocalPool\n"
        "if __name__ == '__main__':\n"
        "    pool = LocalPool(2)\n    print(*pool.process_ids, flush=True)\n    time.sleep(600)\n"
    )
    script = tmp_path / "driver.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        workers = [int(word) for word in driver.stdout.readline().split()]
        assert len(workers) == 2
        driver.kill()
    deadline = time.monotonic() + 60
    while any(alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "workers outlive their driver"
        time.sleep(0.1)


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_an_unknown_executor_or_no_worker_is_refused() -> None:
    with pytest.raises(ConfigError, match="no executor 'moon'"):
        make_executor("moon", 1)
    with pytest.raises(ConfigError, match="at least 1"):
        make_executor("local", 0)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc to read environments from")
def test_each_worker_sees_a_gpu_of_its_own_and_so_does_one_that_replaces_it(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")

    def seen(pid):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # until a new process runs its program, it shows its parent's variables
            variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            if found := [text for text in variables if text.startswith("CUDA_VISIBLE_DEVICES=")]:
                return found[0]
            time.sleep(0.01)
        raise AssertionError("the worker has no CUDA_VISIBLE_DEVICES")

    pool = LocalPool(3, gpus=["4", "5"])
    try:
        ids = pool.process_ids
        assert [seen(pid).partition("=")[2] for pid in ids] == ["4", "5", "4"]
        os.kill(ids[1], signal.SIGKILL)
        list(pool._replace(pool._workers[1]))
        assert pool.process_ids[1] != ids[1]
        assert seen(pool.process_ids[1]) == "CUDA_VISIBLE_DEVICES=5"
    finally:
        pool.close()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,5"


def test_there_are_as_many_local_workers_as_gpus_unless_a_number_is_given():
    for workers, gpus, count in ((None, ["0", "1", "2"], 3), (1, ["0", "1", "2"], 1)):
        pool = make_executor("local", workers, gpus=gpus)
        try:
            assert len(pool.process_ids) == count
        finally:
            pool.close()
