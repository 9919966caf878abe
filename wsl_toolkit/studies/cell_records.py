"""What became of each cell at the last start, in the study's folder: which jobs it has, and which code was to do them.

A report reads the results that these records name, so it needs neither the plugins that made them nor the same code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from typing import Any

import attrs

from wsl_toolkit.parameters import values_of
from wsl_toolkit.studies.cells import CellState, SeedSearch, planned_jobs
from wsl_toolkit.studies.description import Cell
from wsl_toolkit.studies.jobs import Job, JobResult, job_from_dict
from wsl_toolkit.studies.selection import score
from wsl_toolkit.studies.store import Results, StudyFolder
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.system.json_files import read_json


def description_digest(cell: Cell) -> str:
    """Return a short name for all that a study's description says of a cell."""
    study = cell.study
    said = [attrs.asdict(part) for part in (cell.setting, cell.method, study.search)] + [values_of(study.selection)]
    text = json.dumps([*said, study.training, study.seed, cell.trials], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


CODE = re.compile("[0-9a-f]{0,64}")
"""What a result is told by that was made by some code; empty in studies of release 0.1."""


class CellRecords:
    """One file for each cell, `cells/<hash of its label>.json`."""

    def __init__(self, folder: StudyFolder) -> None:
        self.folder = folder
        self._digests = folder.data_digests()
        self._held_out = folder.held_out()

    def _path(self, cell: Cell) -> Any:
        return self.folder.path / "cells" / f"{hashlib.sha256(cell.label.encode()).hexdigest()[:32]}.json"

    def write(self, state: CellState, results: Results) -> None:
        """Keep where a cell stands, in the place of what was there."""
        jobs = state.all_jobs()

        def named(job: Job) -> list[Any]:
            found = results.get(job)
            return [job.to_dict(), results.expected(job) if found is None else found.made_by]

        content = {
            "cell": state.cell.label,
            "described": description_digest(state.cell),
            "data": results.digests.get(state.cell.setting.data_label, ""),
            "since": results.since,
            "code": results.code(jobs[0]) if jobs else {},
            "searches": [
                {
                    "seed": search.seed,
                    "points": [[point, [named(job) for job in own]] for point, own in search.points],
                    "chosen": None if search.chosen is None else search.chosen.point,
                }
                for search in state.searches
            ],
            "trials": [named(job) for job in state.trials],
            "error": state.error,
        }
        path = self._path(state.cell)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, json.dumps(content))

    def code(self, cell: Cell) -> dict[str, str]:
        """Return the code that a cell was last computed by, as far as it is known and still described."""
        content = self._content(cell)
        if content is None:
            return {}
        as_before = content["described"] == description_digest(cell)
        named = {f"{role} {name}" for role, name in cell.named}
        return {key: text for key, text in content["code"].items() if as_before or key in named}

    def read(self, cell: Cell) -> CellState | None:
        """Return where a cell stands by its record and the results that are there; None without a record that fits."""
        content = self._content(cell)
        if content is None or content["described"] != description_digest(cell):
            return None
        if content["data"] != self._digests.get(cell.setting.data_label, ""):
            return None
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):
            return self._state(cell, content)
        return None

    def _content(self, cell: Cell) -> dict[str, Any] | None:
        """Return a record; one that is damaged counts as none, for it is made anew."""
        try:
            content = read_json(self._path(cell))
        except (FileNotFoundError, ValueError):
            return None
        sound = isinstance(content, dict) and isinstance(content.get("code"), dict)
        return content if sound and {"described", "data"} <= set(content) else None

    def _state(self, cell: Cell, content: dict[str, Any]) -> CellState:
        found: dict[str, JobResult | None] = {}

        def read(named: list[Any]) -> Job:
            job, made_by = job_from_dict(named[0]), named[1]
            if not isinstance(made_by, str) or not CODE.fullmatch(made_by):
                raise ValueError("it names no code")
            result = self.folder.read_result(job.id, made_by)
            found[job.id] = result if result is not None and result.ended_at >= content["since"] else None
            return job

        searches = []
        for kept in content["searches"]:
            points = tuple((dict(point), tuple(map(read, own))) for point, own in kept["points"])
            scored = []
            for point, own in points:
                results = [result for job in own if (result := found[job.id]) is not None]
                if len(results) == len(own):
                    held_out = self._held_out.get(cell.setting.label, 0)
                    scored.append(score(point, results, cell.study.selection, held_out))
            chosen = next((each for each in scored if each.point == kept["chosen"]), None)
            searches.append(SeedSearch(seed=kept["seed"], points=points, scored=tuple(scored), chosen=chosen))
        trials = tuple(map(read, content["trials"]))
        jobs = {job.id: job for search in searches for job in search.jobs} | {job.id: job for job in trials}
        return CellState(
            cell=cell,
            searches=tuple(searches),
            trials=trials,
            results=tuple(found[job.id] for job in trials),
            missing=tuple(job for job_id, job in jobs.items() if found[job_id] is None),
            planned=planned_jobs(cell, tuple(searches)),
            error=content["error"],
        )
