"""Which tasks were begun and have not ended: a study that was killed begins them again as they were.

Models that are trained as one stack have the same last bits only in the same stack; and the state that they saved can
be gone on with only by the same models together.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from wsl_toolkit.studies.jobs import Job, job_from_dict
from wsl_toolkit.studies.tasks import Task
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.system.json_files import read_json


class StartedTasks:
    """The jobs of each task under way, a file each in the study's folder, and the jobs' saved states."""

    def __init__(self, folder: Path, checkpoints: Path) -> None:
        self.folder = folder
        self.checkpoints = checkpoints

    def add(self, task: Task) -> None:
        """Write down that a task begins; a single job needs no record."""
        if len(task.jobs) > 1:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file(task), json.dumps([job.to_dict() for job in task.jobs]))

    def remove(self, task: Task, *, with_checkpoints: bool) -> None:
        """Forget a task that has ended; its jobs' saved states too, where they are not needed any more."""
        self._file(task).unlink(missing_ok=True)
        if with_checkpoints:
            for job in task.jobs:
                for saved in self.checkpoints.glob(f"{job.id}*"):  # by whatever code
                    shutil.rmtree(saved, ignore_errors=True)

    def all(self) -> list[tuple[Job, ...]]:
        """Return the jobs of each task that was begun and did not end; a damaged record counts as none."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(ValueError, TypeError, KeyError, OSError):
                found.append(tuple(job_from_dict(values) for values in read_json(path)))
        return found

    def _file(self, task: Task) -> Path:
        return self.folder / f"{task.id}.json"
