"""Tasks: jobs that one worker does in one go."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from pathlib import Path

import attrs

from wsl_toolkit.study.jobs import Job, training_key

DIVISIBLE = 16
"""From so many jobs on, two halves on two workers are done sooner than one whole on one."""


@attrs.frozen(kw_only=True)
class Task:
    """What is sent to a worker: plain values only, so that it can go to a process or to another machine."""

    jobs: tuple[Job, ...]
    data_dir: Path
    device: str = "cpu"
    peers: dict[str, list[float]] = attrs.field(factory=dict)
    """For jobs that may be pruned: the histories of their peers."""
    rule: str = "covering-rate"

    @property
    def id(self) -> str:
        """The task's name: its first job's."""
        return self.jobs[0].id

    @property
    def epochs(self) -> int:
        """How many epochs of single models it comes to."""
        return sum(int(job.config["epochs"]) for job in self.jobs)


def group_key(job: Job) -> str:
    """Return what jobs must share to be trained as one stacked model: data, network, estimator, schedule.

    Search runs share their problem too, so that the stack reads each batch once; trials differ in it by their nature.
    """
    config = job.run_config()
    shared = [config.components[role] for role in ("dataset", "backbone")]
    estimator = config.components["estimator"][0]
    problem = [config.components.get("generator"), job.fold, job.seed] if job.purpose == "selection" else []
    prunes = job.id if job.peers else ""
    return json.dumps([shared, estimator, training_key(config), job.purpose, job.oracle, problem, prunes])


def group(jobs: Sequence[Job], apart: Container[str] = ()) -> list[tuple[Job, ...]]:
    """Put jobs that can be stacked together, except those whose key is in `apart`; first jobs keep their order."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        key = group_key(job)
        groups.setdefault(job.id if key in apart else key, []).append(job)
    return [tuple(members) for members in groups.values()]


def spread(waiting: Sequence[tuple[int, Task]], workers: int) -> list[tuple[int, Task]]:
    """Halve the largest tasks while workers would be idle otherwise; small stacks are not worth dividing."""
    tasks = list(waiting)
    while 0 < len(tasks) < workers:
        place = max(range(len(tasks)), key=lambda i: len(tasks[i][1].jobs))
        number, task = tasks[place]
        if len(task.jobs) < DIVISIBLE:
            break
        half = len(task.jobs) // 2
        tasks[place : place + 1] = [
            (number, attrs.evolve(task, jobs=task.jobs[:half])),
            (number, attrs.evolve(task, jobs=task.jobs[half:])),
        ]
    return tasks
