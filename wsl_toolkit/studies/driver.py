"""Runs a study: asks each cell what it needs next, keeps the executor busy, writes results, delivers them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import attrs

from wsl_toolkit.errors import InterruptedRunError, UnknownComponentError, WslError
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.studies.cell_records import CellRecords
from wsl_toolkit.studies.cells import CellState, cell_state, goodness_by_epoch
from wsl_toolkit.studies.description import Cell, Study
from wsl_toolkit.studies.executor import Advanced, Ended, Event, Executor, Finished
from wsl_toolkit.studies.jobs import Job
from wsl_toolkit.studies.plan import check_description, data_digests, held_out_counts
from wsl_toolkit.studies.queue import JobQueue
from wsl_toolkit.studies.started_tasks import StartedTasks
from wsl_toolkit.studies.store import Results, StudyFolder
from wsl_toolkit.studies.tasks import Task
from wsl_toolkit.studies.tracking import StudyOutbox


class StudyError(WslError):
    """Some of a study's work failed; the rest is done and kept."""

    exit_code = 1


class StudyListener(Protocol):
    """Whoever shows a study's progress."""

    def features(self, done: int, of: int) -> None:
        """A frozen network has run over so many of a dataset's examples."""

    def begin(self, done: int, total: int) -> None:
        """How many jobs are done already, of how many that are known of."""

    def advance(self, epochs: int) -> None:
        """Some epochs of single models were done."""

    def job(self, done: int, total: int) -> None:
        """A job was done."""

    def cell(self, state: CellState, done: int, total: int) -> None:
        """A cell is complete."""

    def note(self, text: str) -> None:
        """Something that the user should know."""


@attrs.define
class _CellWork:
    state: CellState
    family: int
    """The first cell with the same data, network and method; their trials differ in nothing but sets and rates."""
    in_flight: set[str] = attrs.field(factory=set)
    failure: str | None = None

    @property
    def searches(self) -> bool:
        """Whether its trials are not known yet, and will be."""
        known = len(self.state.trials) == self.state.cell.trials
        return not known and self.failure is None and self.state.error is None


class Driver:
    """One start of a study; what earlier starts finished is never done again."""

    def __init__(
        self,
        study: Study,
        folder: StudyFolder,
        registry: Registry,
        executor: Executor,
        listener: StudyListener,
        outbox: StudyOutbox | None,
        *,
        data_dir: Path,
        device: str = "cpu",
        keep_old: bool = False,
    ) -> None:
        self.study = study
        self.registry = registry
        self.executor = executor
        self.listener = listener
        self.outbox = outbox
        self.data_dir = data_dir
        self.device = device
        self.results = Results(folder, registry, keep_old=keep_old)
        self.records = CellRecords(folder)
        self.cells: list[_CellWork] = []
        families: dict[str, int] = {}
        for number, cell in enumerate(study.cells()):
            kind = repr((cell.setting.dataset, cell.setting.backbone, cell.method))
            family = families.setdefault(kind, number)
            self.cells.append(_CellWork(cell_state(cell, self.results, registry), family))
        self.queue = JobQueue()
        self.home = folder.home
        self.started = StartedTasks(folder.path / "tasks", folder.jobs / "checkpoints")
        self.begun_before = self.started.all()
        self.at_work: dict[str, Task] = {}
        self.fresh = 0
        """Results since the states of their cells were renewed."""
        self.reasons: set[str] = set()
        """Why some jobs do better one by one, as far as it was said."""

    def run(self) -> list[CellState]:
        """Do everything that is missing; return where each cell stands."""
        self.listener.begin(*self.counts())
        for number, work in enumerate(self.cells):
            self._renew(number, work)
            self._tell(work)
        while self.at_work or self.queue:
            self._refill()
            for event in self.executor.events():
                self._take(event)
        self._next_begun()  # nothing waits: what is left of earlier starts is removed
        if self.outbox is not None and self.outbox.last_attempt():
            for work in self.cells:
                self._deliver(work.state)
        failures = [f"{w.state.cell.label}: {w.failure or w.state.error}" for w in self.cells if not w.state.done]
        if failures:
            more = f" (and {len(failures) - 1} more cells)" if len(failures) > 1 else ""
            raise StudyError(f"study {self.study.name} is not complete: {failures[0]}{more}")
        return [work.state for work in self.cells]

    def counts(self) -> tuple[int, int]:
        """Return how many jobs were done when each cell's state was renewed, and how many there are."""
        total = sum(work.state.planned for work in self.cells)
        missing = sum(_outstanding(work.state) for work in self.cells)
        return total - missing, total

    def _refill(self) -> None:
        searching = {work.family for work in self.cells if work.searches}
        while self.executor.free and self.queue:
            task = self._task(self._next_begun() or self.queue.take(self.executor.free, searching))
            self.at_work[task.id] = task
            self.started.add(task)
            self.executor.submit(task)

    def _next_begun(self) -> tuple[Job, ...] | None:
        """Return the jobs of a task that an earlier start did not end, if what is left of them is still wanted."""
        while self.begun_before:
            jobs = self.begun_before.pop(0)
            missing = {job.id for job in jobs if self.results.get(job) is None}
            if self.queue.claim(missing):
                return jobs
            # Killed between its last result and the removal of its record, or no part of the study any more.
            self.started.remove(Task(jobs=jobs, data_dir=self.data_dir), with_checkpoints=not missing)
        return None

    def _take(self, event: Event) -> None:
        if isinstance(event, Advanced):
            self.listener.advance(event.epochs)
        elif isinstance(event, Finished):
            if self.results.get(event.result.job) is not None:
                return  # it was finished before the task that it belongs to was begun again
            self.results.add(event.result)
            self.fresh += 1
            done, total = self.counts()
            self.listener.job(done + self.fresh, total)
        elif isinstance(event, Ended):
            self._end(event)

    def _end(self, event: Ended) -> None:
        del self.at_work[event.task.id]
        self.started.remove(event.task, with_checkpoints=event.error is None)
        ids = {job.id for job in event.task.jobs}
        concerned = [(number, work) for number, work in enumerate(self.cells) if work.in_flight & ids]
        if event.apart is not None:
            self._take_apart(concerned, event.task, event.apart)
            return
        for _, work in concerned:
            work.in_flight -= ids
            if event.error is not None:
                work.failure = event.error
                self.listener.note(f"{work.state.cell.label}: {event.error}")
        # What comes next is decided by results alone, not by what was delivered: a resumed study decides the same.
        settled = [(number, work) for number, work in concerned if not work.in_flight]
        for number, work in settled:
            self._renew(number, work)
        self._refill()  # the worker goes on while this process delivers
        for _, work in settled:
            self._tell(work)
        for _, work in concerned:
            if work.in_flight:
                self._deliver(cell_state(work.state.cell, self.results, self.registry))  # the numbers so far

    def _take_apart(self, concerned: list[tuple[int, _CellWork]], task: Task, reason: str) -> None:
        """Do one by one what cannot or need not be stacked, and say so once."""
        if reason not in self.reasons:
            label = concerned[0][1].state.cell.label
            self.listener.note(f"{label}: runs are trained one by one: {reason}")
        self.reasons.add(reason)
        for number, work in concerned:
            own = [job for job in task.jobs if job.id in work.in_flight]
            self.queue.take_apart(own, family=work.family, cell=number)
        self._refill()

    def _renew(self, number: int, work: _CellWork) -> None:
        """Renew a cell's state, and queue what it needs next."""
        before = work.state
        work.state = cell_state(before.cell, self.results, self.registry)
        self.records.write(work.state, self.results)
        self.fresh -= min(self.fresh, _outstanding(before) - _outstanding(work.state))
        if not work.state.done and work.failure is None and work.state.error is None:
            work.in_flight = {job.id for job in work.state.missing}
            begun = {job.id for task in self.at_work.values() for job in task.jobs}  # for a cell with the same runs
            waiting = [job for job in work.state.missing if job.id not in begun]
            self.queue.add(waiting, family=work.family, cell=number)

    def _tell(self, work: _CellWork) -> None:
        """Deliver what is known of a cell, and say if it is complete or cannot be."""
        self._deliver(work.state)
        if work.state.done:
            done = sum(w.state.done for w in self.cells)
            self.listener.cell(work.state, done, len(self.cells))
        elif work.state.error is not None:
            self.listener.note(f"{work.state.cell.label}: {work.state.error}")

    def _task(self, jobs: tuple[Job, ...]) -> Task:
        selection = self.study.selection
        peers = {}
        for job in jobs:
            for peer in job.peers:
                # Peers were complete when the job was proposed.
                peers[peer] = goodness_by_epoch(self.results.known(peer), selection)
        return Task(
            jobs=jobs,
            data_dir=self.data_dir,
            device=self.device,
            peers=peers,
            rule=selection.rule,
            codes={job.id: self.results.code(job) for job in jobs},
            checkpoints=self.started.checkpoints.resolve(),
            home=self.home.resolve(),
        )

    def _deliver(self, state: CellState) -> None:
        if self.outbox is None:
            return
        for search in state.searches:
            for scored in search.scored:
                for result in scored.results:
                    self.outbox.deliver(state.cell, scored.point, result)
        for trial in state.results:
            if trial is not None:
                self.outbox.deliver(state.cell, {}, trial)
        self.outbox.update_cell(state)


def _outstanding(state: CellState) -> int:
    """Return how many of a cell's planned jobs have no result."""
    return state.planned - (state.known - len(state.missing))


def check_study(study: Study, folder: StudyFolder, registry: Registry, data_dir: Path) -> None:
    """Fail before any work on what would fail later, data that is missing or has changed included."""
    check_description(study, registry)
    folder.check_data(data_digests(study, registry, data_dir))
    folder.keep_held_out(held_out_counts(study, registry, data_dir))


def run_study(
    study: Study,
    folder: StudyFolder,
    registry: Registry,
    executor: Executor,
    listener: StudyListener,
    outbox: StudyOutbox | None,
    *,
    data_dir: Path,
    device: str = "cpu",
    keep_old: bool = False,
) -> list[CellState]:
    """Run or resume a study under its lock (which the caller holds); Ctrl-C leaves everything finished in place.

    Results that other code made than is installed are not used, unless `keep_old` says so.
    """
    try:
        executor.prepare(study, registry)
        return Driver(
            study,
            folder,
            registry,
            executor,
            listener,
            outbox,
            data_dir=data_dir,
            device=device,
            keep_old=keep_old,
        ).run()
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"interrupted; everything finished is kept: go on with `wsl study resume {study.name}`"
        ) from None
    finally:
        executor.close()


def study_states(study: Study, folder: StudyFolder, registry: Registry) -> list[CellState]:
    """Return where each cell of a study stands, from its folder alone, as its last start left it.

    A cell without a record (one that was never started, or by release 0.1) stands where its results are: those of the
    installed code or, if it has none, those whose code was not recorded.
    """
    records = CellRecords(folder)
    ways = [Results(folder, registry), Results(folder, registry, made_by="")]
    return [records.read(cell) or _without_record(cell, ways, registry) for cell in study.cells()]


def _without_record(cell: Cell, ways: list[Results], registry: Registry) -> CellState:
    try:
        states = [cell_state(cell, results, registry) for results in ways]
    except UnknownComponentError as error:
        return CellState(
            cell=cell, searches=(), trials=(), results=(), missing=(), planned=cell.trials, error=str(error)
        )
    return next((state for state in states if state.known > len(state.missing)), states[0])


__all__ = ["Cell", "Driver", "StudyError", "StudyListener", "check_study", "run_study", "study_states"]
