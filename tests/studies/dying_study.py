"""Runs studies, a process each, that kill themselves by SIGKILL at their n-th epoch or result.

`python dying_study.py HOME FILE… -- KIND COUNT …` runs all files for each moment in turn, and prints a line of JSON for
each: how they ended, and the results that were there then. Processes are forked, so that torch is imported once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import optuna  # noqa: F401 - here, and torch's compiler below, so that no child imports them again
import sklearn.datasets  # noqa: F401
import torch
import torch._dynamo

from wsl_toolkit.cli.study_progress import SilentStudy
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.driver import check_study, run_study
from wsl_toolkit.studies.executor import Inline
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.store import StudyFolder


class Dying(SilentStudy):
    """Counts events of one kind down to the kill."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind, self.left = kind, count

    def _happened(self, kind: str) -> None:
        self.left -= kind == self.kind
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

    def advance(self, epochs: int) -> None:
        self._happened("epoch")

    def job(self, done: int, total: int) -> None:
        self._happened("result")


def run(file: str, home: Path, listener: Dying) -> None:
    torch.set_num_threads(1)
    study, registry = read_study(file), load_plugins().registry
    folder = StudyFolder(home, study.name)
    folder.create()
    check_study(study, folder, registry, home)
    folder.write_study(study)
    run_study(study, folder, registry, Inline(), listener, None, data_dir=home)


def die(files: list[str], home: Path, kind: str, count: int) -> list[int]:
    """Run all studies until each has killed itself; return how they ended."""
    children = []
    for file in files:
        child = os.fork()
        if not child:
            run(file, home, Dying(kind, count))
            os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main(home: str, *rest: str) -> None:
    files, moments = list(rest[: rest.index("--")]), rest[rest.index("--") + 1 :]
    for kind, count in zip(moments[::2], moments[1::2], strict=True):
        ended = die(files, Path(home), kind, int(count))
        results = {path.name: path.stat().st_mtime_ns for path in (Path(home) / "jobs").glob("*.json")}
        print(json.dumps({"ended": ended, "results": results}))


if __name__ == "__main__":
    main(*sys.argv[1:])
