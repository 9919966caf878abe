"""Jobs that wait for a worker; they become tasks as late as possible, so that cells meet in one stack.

The trials of one method on one dataset differ in their candidate sets only: those of one seed visit the same examples
in the same order, and train for hardly more than the price of one. So trials wait for their relatives' searches while
there is other work, and go together.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

import attrs

from wsl_toolkit.studies.jobs import Job
from wsl_toolkit.studies.tasks import group_key

DIVISIBLE = 16
"""From so many jobs on, two halves on two workers are done sooner than one whole on one."""


@attrs.frozen(kw_only=True)
class _Waiting:
    job: Job
    place: tuple[int, bool, int]
    """Family, whether it is a trial, cell: families come one after the other, so that whole tables are ready early."""
    key: str


class JobQueue:
    """Gives out the jobs that were added, in groups that can train as one."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._apart: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, jobs: Iterable[Job], *, family: int, cell: int) -> None:
        """Let jobs wait; one that waits already, for another cell, is done once."""
        for job in jobs:
            place = (family, job.purpose == "trial", cell)
            self._waiting.setdefault(job.id, _Waiting(job=job, place=place, key=group_key(job)))

    def take_apart(self, jobs: Iterable[Job], *, family: int, cell: int) -> None:
        """Take a group back, to be given out, like all others of its kind, one by one."""
        jobs = tuple(jobs)
        self._apart |= {group_key(job) for job in jobs}
        self.add(jobs, family=family, cell=cell)

    def claim(self, ids: Collection[str]) -> bool:
        """Take certain jobs, if all of them wait; return whether they did."""
        if not ids or any(job_id not in self._waiting for job_id in ids):
            return False
        for job_id in ids:
            del self._waiting[job_id]
        return True

    def take(self, workers: int, searching: Container[int] = ()) -> tuple[Job, ...]:
        """Take the jobs that a worker should do next; `workers` of them are free.

        Trials of families that are still `searching` are left for later, unless there is nothing else.
        """
        groups = self._groups()
        ready = [g for g in groups if not (g[0].place[1] and g[0].place[0] in searching)]
        chosen = divided([tuple(each.job for each in g) for g in ready or groups], workers)[0]
        for job in chosen:
            del self._waiting[job.id]
        return chosen

    def _groups(self) -> list[list[_Waiting]]:
        groups: dict[str, list[_Waiting]] = {}
        for each in sorted(self._waiting.values(), key=lambda each: each.place):
            groups.setdefault(each.job.id if each.key in self._apart else each.key, []).append(each)
        # Models of one seed share their batches: they should stay side by side if the group is divided.
        return [sorted(members, key=lambda each: each.job.seed) for members in groups.values()]


def divided(groups: list[tuple[Job, ...]], workers: int) -> list[tuple[Job, ...]]:
    """Halve the largest groups while workers would be idle otherwise; small stacks are not worth dividing."""
    groups = list(groups)
    while 0 < len(groups) < workers:
        place = max(range(len(groups)), key=lambda i: len(groups[i]))
        jobs = groups[place]
        if len(jobs) < DIVISIBLE:
            break
        half = len(jobs) // 2
        groups[place : place + 1] = [jobs[:half], jobs[half:]]
    return groups
