"""Who does the tasks: an interface of a few methods, and two that need nothing installed.

For clusters there are `ray_executor` and `slurm_executor`.

An executor takes tasks and gives events. It keeps nothing: a task that dies with its worker is given to another, and
one that kills two workers is reported as failed. Results are written by whoever drives.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from wsl_toolkit.errors import ConfigError, WslError, one_line
from wsl_toolkit.studies.jobs import JobResult
from wsl_toolkit.studies.tasks import Task

if TYPE_CHECKING:
    from wsl_toolkit.plugins.registry import Registry
    from wsl_toolkit.studies.description import Study

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""What CUDA reads to know which GPUs a process may use."""

ATTEMPTS = 2
"""How many workers a task may take down with it before it is given up."""


@attrs.frozen(kw_only=True)
class Advanced:
    """Some epochs of a task were done."""

    task: Task
    epochs: int


@attrs.frozen(kw_only=True)
class Finished:
    """A job has its result."""

    task: Task
    result: JobResult


@attrs.frozen(kw_only=True)
class Ended:
    """A task is over, and its worker is free; `error` says why if it did not end well."""

    task: Task
    error: str | None = None
    apart: str | None = None
    """Why the task's jobs should be done one by one; then none of them is done yet."""


Event = Advanced | Finished | Ended


class Executor(Protocol):
    """What a study asks of whoever does its work."""

    name: str

    def prepare(self, study: Study, registry: Registry) -> None:
        """Make ready for a study; what could not be done anywhere is refused now."""

    @property
    def free(self) -> int:
        """How many tasks can be taken now."""

    def submit(self, task: Task) -> None:
        """Take a task."""

    def events(self) -> Iterator[Event]:
        """Yield what has happened, waiting for at least one event."""

    def close(self) -> None:
        """Stop all work at once; unfinished tasks are lost, and nothing else."""


class Inline:
    """Does tasks in this process, one after the other."""

    name = "inline"

    def __init__(self) -> None:
        from wsl_toolkit.studies.worker import TaskWorker

        self._worker = TaskWorker()
        self._task: Task | None = None

    def prepare(self, study: Study, registry: Registry) -> None:
        """Nothing to do: this process has checked the study."""

    @property
    def free(self) -> int:
        """One, unless a task waits."""
        return 0 if self._task else 1

    def submit(self, task: Task) -> None:
        """Keep the task for `events`."""
        self._task = task

    def events(self) -> Iterator[Event]:
        """Do the task."""
        task = self._task
        if task is None:
            return
        self._task = None
        done: list[int] = []
        try:
            for outcome in self._worker.run(task, done.append):
                yield Advanced(task=task, epochs=sum(done))
                done.clear()
                if not isinstance(outcome, JobResult):
                    yield Ended(task=task, apart=outcome.reason)
                    return
                yield Finished(task=task, result=outcome)
        except WslError as error:
            yield Ended(task=task, error=str(error))
            return
        yield Ended(task=task)

    def close(self) -> None:
        """Nothing to stop."""


class LocalPool:
    """Worker processes on this machine, started by spawning, each with its share of the cores.

    Of `gpus` each has one, in turn, and sees no other.
    """

    name = "local"

    def __init__(self, workers: int, gpus: Sequence[str] = ()) -> None:
        if workers < 1:
            raise ConfigError(f"--jobs must be at least 1, not {workers}")
        self._gpus = gpus
        self._context = multiprocessing.get_context("spawn")
        self._threads = max(1, usable_cores() // workers)
        self._count = workers
        self._workers = [self._hire(place) for place in range(workers)]
        self._died: dict[str, int] = {}

    def prepare(self, study: Study, registry: Registry) -> None:
        """Nothing to do: workers have what this process has."""

    def _hire(self, place: int) -> _Worker:
        ours, theirs = self._context.Pipe()
        gpu = self._gpus[place % len(self._gpus)] if self._gpus else None
        process = self._context.Process(target=_work, args=(theirs, self._threads, self._count), daemon=True)
        with _seeing(gpu):
            process.start()
        theirs.close()
        return _Worker(process=process, pipe=ours)

    @property
    def free(self) -> int:
        """How many workers are idle."""
        return sum(worker.task is None for worker in self._workers)

    @property
    def process_ids(self) -> list[int]:
        """The workers' process ids."""
        return [worker.process.pid for worker in self._workers]

    def submit(self, task: Task) -> None:
        """Give a task to an idle worker."""
        self._give(next(worker for worker in self._workers if worker.task is None), task)

    def _give(self, worker: _Worker, task: Task) -> None:
        worker.task = task
        with contextlib.suppress(OSError):  # it has just died; `events` sees that and finds another
            worker.pipe.send(task)

    def events(self) -> Iterator[Event]:
        """Wait for messages and deaths."""
        busy = [worker for worker in self._workers if worker.task is not None]
        if not busy:
            return
        wait([thing for worker in busy for thing in (worker.pipe, worker.process.sentinel)])
        for worker in busy:
            try:
                while worker.pipe.poll():
                    yield self._event(worker, worker.pipe.recv())
            except (EOFError, OSError):
                yield from self._replace(worker)

    def _event(self, worker: _Worker, message: tuple[str, Any]) -> Event:
        kind, value = message
        task = worker.task
        assert task is not None
        if kind == "advanced":
            return Advanced(task=task, epochs=value)
        if kind == "finished":
            return Finished(task=task, result=value)
        worker.task = None
        return Ended(task=task, apart=value) if kind == "apart" else Ended(task=task, error=value)

    def _replace(self, worker: _Worker) -> Iterator[Event]:
        """Replace a dead worker; its task gets another try."""
        task = worker.task
        worker.process.join()
        code = worker.process.exitcode
        worker.pipe.close()
        place = self._workers.index(worker)
        self._workers[place] = self._hire(place)
        if task is None:
            return
        self._died[task.id] = self._died.get(task.id, 0) + 1
        if self._died[task.id] < ATTEMPTS:
            self._give(self._workers[place], task)
        else:
            reason = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            yield Ended(
                task=task,
                error=f"{ATTEMPTS} workers died of {reason} on it (out of memory? use fewer --jobs)",
            )

    def close(self) -> None:
        """End the workers that this pool started."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()


@attrs.define
class _Worker:
    process: Any
    pipe: Connection
    task: Task | None = None


@contextlib.contextmanager
def _seeing(gpu: str | None) -> Iterator[None]:
    """Let a process that is started inside see one GPU alone, or all that this one sees."""
    before = os.environ.get(VISIBLE)
    if gpu is not None:
        os.environ[VISIBLE] = gpu
    try:
        yield
    finally:
        os.environ.pop(VISIBLE, None)
        if before is not None:
            os.environ[VISIBLE] = before


def _work(pipe: Connection, threads: int, share: int) -> None:
    """Do tasks until the driver goes away; then go too, in the middle of a task if need be."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    threading.Thread(target=_follow_parent, daemon=True).start()
    import torch

    torch.set_num_threads(threads)
    from wsl_toolkit.studies.worker import TaskWorker

    worker = TaskWorker(share=share)
    try:
        while True:
            task = pipe.recv()
            pipe.send(attempt(worker, task, pipe.send))
    except (EOFError, OSError):
        os._exit(0)  # there is nothing left to do, and taking torch's modules apart takes a second


def attempt(worker: Any, task: Task, send: Callable[[tuple[str, Any]], None]) -> tuple[str, str | None]:
    """Do a task; return the last message about it."""
    try:
        for outcome in worker.run(task, lambda epochs: send(("advanced", epochs))):
            if not isinstance(outcome, JobResult):
                return "apart", outcome.reason
            send(("finished", outcome))
    except WslError as error:
        return "ended", str(error)
    except MemoryError:
        return "ended", "out of memory: use fewer --jobs, or a smaller batch"
    except ConnectionError:
        raise  # the driver is gone
    except Exception as error:
        if os.environ.get("WSL_TRACEBACK") == "1":
            traceback.print_exc()
        return "ended", f"unexpected {one_line(error)} (WSL_TRACEBACK=1 shows where)"
    return "ended", None


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@attrs.frozen(kw_only=True)
class Cluster:
    """Which cluster to ask, and what a task takes of it; only `ray` and `slurm` heed it."""

    address: str = "auto"
    cpus: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    gpus: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    memory: int = 0
    """Bytes; 0 leaves it to the nodes."""
    node_data: bool = False
    """Ray: every node reads the data itself, below the same path; otherwise it is sent to each node once."""
    minutes: int = attrs.field(default=60, validator=attrs.validators.ge(1))
    """SLURM: the time limit of a task."""
    options: tuple[tuple[str, str], ...] = ()
    """SLURM: more of sbatch's options, such as a partition, by name."""


def check_installed(name: str) -> None:
    """Refuse an executor whose package is missing, with the command that installs it."""
    if name == "ray" and importlib.util.find_spec("ray") is None:
        raise ConfigError(
            "--executor ray needs Ray, which is not installed: pip install 'wsl-toolkit[ray]' (on every node)"
        )
    if name == "slurm" and importlib.util.find_spec("submitit") is None:
        raise ConfigError("--executor slurm needs submitit, which is not installed: pip install 'wsl-toolkit[slurm]'")


def make_executor(name: str, workers: int | None, cluster: Cluster | None = None, gpus: Sequence[str] = ()) -> Executor:
    """Return an executor by name: `local` processes, `ray` or `slurm` for a cluster, `inline`: all in this process.

    Local workers share out `gpus`, and are as many where no number is given.
    """
    if name == "inline":
        return Inline()
    if name == "local":
        return LocalPool((len(gpus) or usable_cores()) if workers is None else workers, gpus)
    if name == "ray":
        check_installed(name)
        from wsl_toolkit.studies.ray_executor import RayExecutor

        return RayExecutor(cluster or Cluster(), workers)
    if name == "slurm":
        check_installed(name)
        from wsl_toolkit.runs.tracking.store import HOME
        from wsl_toolkit.studies.slurm_executor import SlurmExecutor

        return SlurmExecutor(cluster or Cluster(), HOME, workers)
    raise ConfigError(f"there is no executor {name!r}; there are local, ray, slurm and inline")
