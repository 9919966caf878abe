"""Tasks: jobs that one worker does in one go."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from wsl_toolkit.studies.jobs import Job, training_key


@attrs.frozen(kw_only=True)
class Task:
    """What is sent to a worker: plain values only, so that it can go to a process or to another machine."""

    jobs: tuple[Job, ...]
    data_dir: Path
    device: str = "cpu"
    peers: dict[str, list[float]] = attrs.field(factory=dict)
    """For jobs that may be pruned: the histories of their peers."""
    rule: str = "covering-rate"
    codes: dict[str, dict[str, str]] = attrs.field(factory=dict)
    """By job: the code that it is to be computed by; a worker that has another refuses."""
    checkpoints: Path | None = None
    """Below which jobs save their state; None where the worker may not share a disk with the driver."""
    home: Path | None = None
    """The workspace, whose features are used; None where the worker may not share a disk with the driver."""

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
    shared = [config.components.get(role) for role in ("dataset", "backbone", "transform")]
    estimator = config.components["estimator"][0]
    problem = [config.components.get("generator"), job.fold, job.seed] if job.purpose == "selection" else []
    prunes = job.id if job.peers else ""
    return json.dumps([shared, estimator, training_key(config), job.purpose, job.oracle, problem, prunes])
