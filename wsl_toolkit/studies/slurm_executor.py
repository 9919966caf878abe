"""A study on a SLURM cluster through submitit: a SLURM job for each task, results as they come.

Jobs and driver share a disk, as submitit needs it: a worker leaves its messages in a folder, whose files the driver
reads, and saves its state in the study's own folder, so that a job that is cut off by its time limit, or preempted,
goes on from there when it is begun again. Results are written by the driver alone, as everywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.studies.executor import Cluster, Ended, Event, Finished
from wsl_toolkit.studies.flights import Flight, SameSets
from wsl_toolkit.studies.jobs import result_from_json
from wsl_toolkit.studies.node_worker import Message, Terms, needed_versions, perform
from wsl_toolkit.studies.tasks import Task
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.system.json_files import read_json
from wsl_toolkit.system.shared_work import BEAT_SECONDS, SharedWork

if TYPE_CHECKING:
    from wsl_toolkit.plugins.registry import Registry
    from wsl_toolkit.studies.description import Study

AT_ONCE = 8
"""So many jobs are in SLURM's queue unless --jobs says otherwise."""
POLL_SECONDS = 0.5
LOST_SECONDS = 300.0
"""A worker that has seen no sign of its driver's life for so long ends itself."""
FOLDER = "slurm"
"""Below the workspace."""
DAMAGED = "damaged"


class SlurmExecutor:
    """Does tasks as jobs of SLURM, or, with the address `local`, as processes that submitit starts here."""

    name = "slurm"

    def __init__(self, cluster: Cluster, home: Path, limit: int | None = None) -> None:
        import submitit

        self.kind = "slurm" if cluster.address == "auto" else cluster.address
        check_cluster(cluster, self.kind)
        self.cluster = cluster
        self.limit = limit or AT_ONCE
        self._work = SharedWork(home / FOLDER, "study-")
        self.folder = self._work.folder
        self._slurm = submitit.AutoExecutor(folder=self.folder, cluster=self.kind)
        self._flights: dict[Any, tuple[Flight, Path]] = {}
        """Flights by their jobs, each with the folder in which its messages arrive."""
        self._grounded: list[Flight] = []
        self._sets = SameSets()
        self._versions: dict[str, str] = {}
        self._failed = False

    def prepare(self, study: Study, registry: Registry) -> None:
        """Tell SLURM what a task takes; versions are compared when a job starts."""
        self._versions = needed_versions(study, registry)
        asked: dict[str, Any] = {"name": f"wsl-{study.name}"[:60], "timeout_min": self.cluster.minutes}
        if self.kind == "slurm":
            asked |= {"cpus_per_task": self.cluster.cpus, "slurm_use_srun": False}
            asked |= {"gpus_per_node": int(self.cluster.gpus)} if self.cluster.gpus else {}
            asked |= {"mem_gb": self.cluster.memory / 2**30} if self.cluster.memory else {}
            asked |= {"slurm_additional_parameters": dict(self.cluster.options)} if self.cluster.options else {}
        self._slurm.update_parameters(**asked)

    @property
    def free(self) -> int:
        """How many more tasks may go into the queue."""
        return max(0, self.limit - len(self._flights) - len(self._grounded))

    def submit(self, task: Task) -> None:
        """Queue a task."""
        device = "cpu" if task.device == "auto" and not self.cluster.gpus else task.device
        sent = attrs.evolve(
            task,
            device=device,
            data_dir=task.data_dir.resolve(),
            checkpoints=None if task.checkpoints is None else task.checkpoints.resolve(),
            home=None if task.home is None else task.home.resolve(),
        )
        self._launch(Flight(sent))

    def _launch(self, flight: Flight) -> None:
        inbox = Path(tempfile.mkdtemp(prefix="messages-", dir=self.folder))
        task = flight.rest
        terms = Terms(digest=task.jobs[0].data, source=(), versions=self._versions, threads=self.cluster.cpus, share=1)
        try:
            job = self._slurm.submit(work, task, terms, inbox, self._work.alive)
        except Exception as error:  # whatever sbatch has against it
            raise ConfigError(f"SLURM did not take a job: {one_line(error)[:500]}") from None
        self._flights[job] = (flight, inbox)

    def events(self) -> Iterator[Event]:
        """Yield what tasks said, waiting for it for a moment; deaths are dealt with here."""
        for flight in [flight for flight in self._grounded if flight.due <= time.monotonic()]:
            self._grounded.remove(flight)
            self._launch(flight)
        heard = False
        for job in list(self._flights):
            flight, inbox = self._flights[job]
            is_over = job.done()  # before its messages are read, or its last ones could be missed
            for message in read_messages(inbox):
                heard = True
                if message[0] == DAMAGED:
                    yield from self._begin_again(job, message[1], "is the disk sound?")
                    break
                event = flight.heard(message)
                if isinstance(event, Finished):
                    self._sets.check(event.result)
                if isinstance(event, Ended):
                    self._forget(job, failed=event.error is not None)
                yield event
            if is_over and job in self._flights:
                heard = True
                yield from self._begin_again(
                    job, reason(job), f"out of memory or of time? its log is {job.paths.stderr}"
                )
        if not heard:
            time.sleep(POLL_SECONDS)

    def _begin_again(self, job: Any, why: str, advice: str) -> Iterator[Event]:
        """Have a task that was lost begun again, or given up if that happened too often."""
        flight = self._flights[job][0]
        with contextlib.suppress(Exception):  # it may be over, or SLURM may not answer
            job.cancel(check=False)
        self._forget(job, failed=True)
        ended = flight.died(why, advice)
        if ended is None:
            self._grounded.append(flight)
        else:
            yield ended

    def _forget(self, job: Any, *, failed: bool) -> None:
        _, inbox = self._flights.pop(job)
        shutil.rmtree(inbox, ignore_errors=True)
        self._failed |= failed

    def close(self) -> None:
        """Cancel what is queued or runs, and remove what submitit left, unless a log in it is worth reading."""
        for job in self._flights:
            with contextlib.suppress(Exception):  # it may be over, or SLURM may not answer
                job.cancel(check=False)
        self._flights.clear()
        self._grounded.clear()
        self._work.close(keep=self._failed)


def check_cluster(cluster: Cluster, kind: str) -> None:
    """Refuse what SLURM cannot give, or that there is none."""
    if kind not in ("slurm", "local"):
        raise ConfigError(f"--address {kind}: SLURM is found by itself (auto); local starts processes here instead")
    missing = next((program for program in ("sbatch", "srun") if shutil.which(program) is None), None)
    if kind == "slurm" and missing:
        raise ConfigError(
            f"there is no SLURM here (no {missing} on the PATH): start it on a login node of the cluster, or try "
            "it with --address local"
        )
    if cluster.gpus != int(cluster.gpus):
        raise ConfigError(f"--task-gpus {cluster.gpus:g}: SLURM gives whole GPUs to a job")


def work(task: Task, terms: Terms, inbox: Path, alive: Path) -> None:
    """Do a task in a job of SLURM, and leave what it says as files in a folder."""
    os.environ["PYTHONSAFEPATH"] = "1"
    threading.Thread(target=_follow, args=(alive,), daemon=True).start()
    number = 0
    for messages in perform(task, terms):
        for kind, value in messages:
            number += 1
            text = value.to_json() if kind == "finished" else value
            write_atomically(inbox / f"{number:06d}.json", json.dumps([kind, text]))


def _follow(alive: Path) -> None:
    """End this process when the driver has given no sign for long: a study that is resumed does its task anew."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < LOST_SECONDS:
        with contextlib.suppress(OSError):
            if (now := alive.stat().st_mtime_ns) != seen:
                seen, since = now, time.monotonic()
        time.sleep(BEAT_SECONDS)
    os._exit(1)


def read_messages(inbox: Path) -> list[Message]:
    """Take the messages that have arrived out of their folder, in their order; one that cannot be read is `DAMAGED`."""
    found: list[Message] = []
    for path in sorted(inbox.glob("[0-9]*.json")):
        try:
            found.append(_message(read_json(path)))
        except (ValueError, TypeError, KeyError) as error:
            found.append((DAMAGED, f"a message of its worker is damaged ({one_line(error)[:200]})"))
        path.unlink()
    return found


def _message(said: Any) -> Message:
    """Return a message, or raise a ValueError, TypeError or KeyError if it is none."""
    kind, value = said
    if kind == "finished":
        return kind, result_from_json(value)
    known = {"advanced": (int,), "apart": (str,), "ended": (str, type(None))}
    if not isinstance(kind, str) or type(value) not in known.get(kind, ()):
        raise ValueError("it is none that a worker sends")
    return kind, value


def reason(job: Any) -> str:
    """Return how a job ended without a last word, in a line."""
    try:
        lines = [line.strip() for line in str(job.exception() or job.state).splitlines() if line.strip("- \t")]
    except Exception as error:
        return one_line(error)[:200]
    return (lines[-1] if lines else "no reason is known")[:200]
