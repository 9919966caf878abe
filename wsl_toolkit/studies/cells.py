"""What a cell (a setting with a method) needs next: search runs, then, once a point is selected, reported trials.

Everything follows from the description and the results on disk, so nothing else has to be remembered.
"""

from __future__ import annotations

from typing import Any

import attrs

from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.studies.description import Cell
from wsl_toolkit.studies.jobs import FINISHED, Job, JobResult, make_job, weights_label
from wsl_toolkit.studies.rule import Selection
from wsl_toolkit.studies.search import Outcome, Point, proposals
from wsl_toolkit.studies.selection import Scored, SelectionError, best, score
from wsl_toolkit.studies.store import Results


@attrs.frozen(kw_only=True)
class SeedSearch:
    """The search on one seed's problem: the points known so far, and the chosen one once all are done."""

    seed: int
    points: tuple[tuple[Point, tuple[Job, ...]], ...]
    """Each point with its jobs, one for each fold."""
    scored: tuple[Scored, ...]
    chosen: Scored | None

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs of all points."""
        return tuple(job for _, own in self.points for job in own)


@attrs.frozen(kw_only=True)
class CellState:
    """Where a cell stands."""

    cell: Cell
    searches: tuple[SeedSearch, ...]
    trials: tuple[Job, ...]
    """The trials whose hyper-parameters are known."""
    results: tuple[JobResult | None, ...]
    """The trials' results, in their order."""
    missing: tuple[Job, ...]
    """What can be computed now."""
    planned: int
    """How many jobs the cell has in all, as far as can be known."""
    error: str | None = None
    """Why the cell cannot go on."""

    @property
    def done(self) -> bool:
        """Whether every trial has its result."""
        return len(self.trials) == self.cell.trials and all(r is not None for r in self.results)

    @property
    def finished(self) -> tuple[JobResult, ...]:
        """The trials that ended well."""
        return tuple(r for r in self.results if r is not None and r.status == FINISHED)

    @property
    def points(self) -> list[dict[str, Any]]:
        """What was chosen: one point, or one for each trial that chose its own."""
        return [search.chosen.point for search in self.searches if search.chosen is not None]

    @property
    def known(self) -> int:
        """How many different jobs are known so far."""
        return len({job.id for job in self.all_jobs()})

    def all_jobs(self) -> list[Job]:
        """Return every job known so far, search first."""
        return [*(job for search in self.searches for job in search.jobs), *self.trials]


def cell_state(cell: Cell, results: Results, registry: Registry) -> CellState:
    """Return where a cell stands, given what is on disk; a search that came to nothing is the cell's error."""
    try:
        return _follow(cell, results, registry)
    except SelectionError as error:
        return attrs.evolve(_state(cell, (), (), results), error=str(error))


def _follow(cell: Cell, results: Results, registry: Registry) -> CellState:
    study = cell.study
    if not cell.space:
        trials = tuple(_trial(cell, {}, seed, results, registry) for seed in cell.seeds)
        return _state(cell, (), trials, results)
    seeds = cell.seeds if study.selection.per_trial else cell.seeds[:1]
    searches = tuple(_search(cell, seed, results, registry) for seed in seeds)
    chosen = {search.seed: search.chosen for search in searches}
    first = searches[0].chosen
    trials = tuple(
        _trial(cell, pick.point, seed, results, registry)
        for seed in cell.seeds
        if (pick := chosen[seed] if study.selection.per_trial else first) is not None
    )
    return _state(cell, searches, trials, results)


def _state(cell: Cell, searches: tuple[SeedSearch, ...], trials: tuple[Job, ...], results: Results) -> CellState:
    found = tuple(results.get(job) for job in trials)
    wanted = [job for search in searches for job in search.jobs if results.get(job) is None]
    wanted += [job for job, result in zip(trials, found, strict=True) if result is None]
    unique = tuple({job.id: job for job in wanted}.values())
    planned = planned_jobs(cell, searches)
    return CellState(cell=cell, searches=searches, trials=trials, results=found, missing=unique, planned=planned)


def planned_jobs(cell: Cell, searches: tuple[SeedSearch, ...]) -> int:
    """Return how many jobs a cell has in all, as far as can be known before its searches are over."""
    search = cell.study.search
    per_search = search.points * cell.study.selection.folds if search.strategy != "grid" and cell.space else 0
    known = {job.id for one in searches for job in one.jobs}
    return max(len(known), per_search * len(searches)) + cell.trials


def _trial(cell: Cell, point: Point, seed: int, results: Results, registry: Registry) -> Job:
    config = cell.config(point, seed=seed, epochs=None, registry=registry)
    metric = cell.study.selection.plugins_metric if cell.space else ""
    digests = results.digests
    data, weights = digests.get(cell.setting.data_label, ""), digests.get(weights_label(config), "")
    return make_job(config, "trial", data=data, weights=weights, metric=metric)


def _search(cell: Cell, seed: int, results: Results, registry: Registry) -> SeedSearch:
    """Replay the search from its beginning: proposals are deterministic in what is known."""
    study = cell.study
    jobs: list[tuple[Point, tuple[Job, ...]]] = []

    def outcome(point: Point, earlier: list[Point]) -> Outcome | None:
        peers: tuple[str, ...] = ()
        if study.search.prune:
            peers = tuple(job.id for _, point_jobs in jobs[: len(earlier)] for job in point_jobs if job.fold == 0)
        own = _point_jobs(cell, point, seed, results, registry, peers)
        jobs.append((point, own))
        found = [result for job in own if (result := results.get(job)) is not None]
        if len(found) < len(own):
            return None
        return _told(point, found, cell)

    points, complete = proposals(study.search, cell.space, seed, outcome)
    if not jobs:  # a grid proposes everything without asking
        jobs = [(point, _point_jobs(cell, point, seed, results, registry)) for point in points]
    scored = []
    for point, own in jobs:
        found = [result for job in own if (result := results.get(job)) is not None]
        if len(found) == len(own):
            scored.append(score(point, found, study.selection, results.held_out.get(cell.setting.label, 0)))
    chosen = best(scored, study.selection) if complete and len(scored) == len(jobs) else None
    return SeedSearch(seed=seed, points=tuple(jobs), scored=tuple(scored), chosen=chosen)


def _point_jobs(
    cell: Cell, point: Point, seed: int, results: Results, registry: Registry, peers: tuple[str, ...] = ()
) -> tuple[Job, ...]:
    data = results.digests.get(cell.setting.data_label, "")
    selection = cell.study.selection
    config = cell.config(point, seed=seed, epochs=cell.search_epochs, registry=registry)
    return tuple(
        make_job(
            config,
            "selection",
            data=data,
            weights=results.digests.get(weights_label(config), ""),
            fold=fold,
            folds=selection.folds,
            oracle=selection.is_oracle,
            peers=peers,
            metric=selection.plugins_metric,
        )
        for fold in range(selection.folds)
    )


def _told(point: Point, found: list[JobResult], cell: Cell) -> Outcome:
    """Return what a sampler is told of a point."""
    selection = cell.study.selection
    status = next((result.status for result in found if result.status != FINISHED), FINISHED)
    value = score(point, found, selection)
    goodness = None if value.value is None else value.goodness(selection)
    return status, goodness, goodness_by_epoch(found[0], selection)


def goodness_by_epoch(result: JobResult, selection: Selection) -> list[float]:
    """Return the rule's metric epoch by epoch, turned so that more is better."""
    measure = selection.measure
    return [measure.sign * value for value in result.history.get(measure.name, [])]
