"""Results that other code made than is installed: which, how many, and what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from wsl_toolkit.plugins.code_identity import changes, require
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.studies.cell_records import CellRecords
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.jobs import JobResult
from wsl_toolkit.studies.store import Results, StudyFolder

MOST_LINES = 12


@attrs.frozen(kw_only=True)
class OtherCode:
    """How many results other code made than is installed, and what is different about it, a line each."""

    results: int = 0
    changes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The beginning of a sentence about it."""
        were = "result was" if self.results == 1 else "results were"
        return f"{self.results} {were} made by other code than is installed"


def results_of(state: CellState) -> list[JobResult]:
    """Return all results of a cell, those of searches first."""
    searched = [result for search in state.searches for scored in search.scored for result in scored.results]
    return [*searched, *(result for result in state.results if result is not None)]


def codes_of(state: CellState) -> list[dict[str, str]]:
    """Return the different codes that made a cell's results; more than one only where old results were kept."""
    return list({result.made_by: result.code for result in results_of(state)}.values())


def compare(found: Iterable[JobResult], installed: Results) -> OtherCode:
    """Return which of the results the installed code did not make."""
    counts: Counter[str] = Counter()
    unlike = {result.job.id: result for result in found if result.code != installed.code(result.job)}
    for result in unlike.values():
        counts.update(changes(result.code, installed.code(result.job)))
    lines = [f"{line} ({count} result{'s' if count > 1 else ''})" for line, count in counts.most_common()]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"and {len(lines) - MOST_LINES} more components"]
    return OtherCode(results=len(unlike), changes=tuple(lines))


def other_code(states: Sequence[CellState], folder: StudyFolder, registry: Registry) -> OtherCode:
    """Return which of the results that a report shows the installed code did not make."""
    return compare((result for state in states for result in results_of(state)), Results(folder, registry))


def check_plugins(study: Study, folder: StudyFolder, registry: Registry) -> None:
    """Refuse to go on with a study one of whose plugins is gone; say which distribution and version it was."""
    records = CellRecords(folder)
    for cell in study.cells():
        require(registry, records.code(cell), f"study {study.name}")


def left_behind(states: Sequence[CellState], results: Results) -> OtherCode:
    """Return which results are there already, but made by other code, so that a start computes them anew."""
    records = CellRecords(results.folder)
    found: list[JobResult] = []
    for state in states:
        before = records.read(state.cell)
        done = {job.id for job in state.all_jobs()} - {job.id for job in state.missing}
        found += [result for result in (results_of(before) if before else ()) if result.job.id not in done]
        found += [result for job in state.missing if (result := results.other(job)) is not None]
    return compare(found, results)
