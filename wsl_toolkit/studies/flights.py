"""What executors on other machines share: tasks that may die there, and sets that must be the same everywhere."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import attrs

from wsl_toolkit.errors import DataError
from wsl_toolkit.studies.executor import Advanced, Ended, Event, Finished
from wsl_toolkit.studies.tasks import Task

if TYPE_CHECKING:
    from wsl_toolkit.studies.jobs import JobResult
    from wsl_toolkit.studies.node_worker import Message

ATTEMPTS = 4
"""How often a task is begun before it is given up: two nodes may die under it, and it may kill two workers."""
PAUSE_SECONDS = 1.0
"""A task waits before it is begun again, twice as long each time: a cluster learns of a death some seconds late."""


@attrs.define(eq=False)
class Flight:
    """A task under way: what is left of it, and how often it has died."""

    task: Task
    finished: set[str] = attrs.field(factory=set)
    deaths: int = 0
    due: float = 0.0

    @property
    def rest(self) -> Task:
        """The jobs that have no result."""
        return attrs.evolve(self.task, jobs=tuple(job for job in self.task.jobs if job.id not in self.finished))

    def heard(self, message: Message) -> Event:
        """Return what a message from the task's worker comes to."""
        kind, value = message
        if kind == "advanced":
            return Advanced(task=self.task, epochs=value)
        if kind == "finished":
            self.finished.add(value.job.id)
            return Finished(task=self.task, result=value)
        return Ended(task=self.task, apart=value if kind == "apart" else None, error=value if kind == "ended" else None)

    def died(self, why: str, advice: str) -> Ended | None:
        """Count a death; return how the task ended, or None if it is to be begun again when it is due."""
        self.deaths += 1
        if not self.rest.jobs:
            return Ended(task=self.task)
        if self.deaths < ATTEMPTS:
            self.due = time.monotonic() + PAUSE_SECONDS * 2 ** (self.deaths - 1)
            return None
        return Ended(task=self.task, error=f"begun {ATTEMPTS} times, and its worker died every time ({advice}): {why}")


class SameSets:
    """Refuses results whose node drew other candidate sets than another node for the same problem."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def check(self, result: JobResult) -> None:
        """Compare a result's sets with those of the same problem that came before."""
        job = result.job
        facts = [job.config.get(name) for name in ("generator", "seed", "validation", "test")]
        problem = json.dumps([job.data, facts, job.fold, job.folds])
        known = self._known.setdefault(problem, result.candidates_hash)
        if known != result.candidates_hash:
            raise DataError(
                f"two nodes drew different candidate sets for seed {job.seed} ({known[:12]} and "
                f"{result.candidates_hash[:12]}): a generator depends on more than its seed, or machines differ"
            )
