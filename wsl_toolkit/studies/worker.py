"""What a worker does with a task: load the data once, build each problem once, train, and hand results back.

Workers know neither the study's folder nor MLflow: the driver alone writes, so that executors need no shared disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import torch

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import PARTS, Problem, make_problem
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.attribution import blame
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.studies.cells import goodness_by_epoch
from wsl_toolkit.studies.jobs import DIVERGED, FINISHED, PRUNED, Job, JobResult
from wsl_toolkit.studies.search import Pruner
from wsl_toolkit.studies.tasks import Task
from wsl_toolkit.training.config import RunConfig, Training
from wsl_toolkit.training.engine import EpochRecord, Trainer
from wsl_toolkit.training.stacking import Group, models_that_fit, train_stacked, why_it_does_not_pay, why_not
from wsl_toolkit.training.train import make_trainer, run_trial

Tell = Callable[[int], None]
"""Called with the number of single-model epochs that have just been done."""

KEPT_BYTES = 2 * 2**30
"""How much a worker remembers of problems that the next method will want again: five trials of MNIST fit."""


@attrs.frozen
class Apart:
    """A worker's advice: train these jobs one by one, because …"""

    reason: str


class _PrunedError(Exception):
    """Ends a training that is not worth going on with."""


class Workshop:
    """A worker's memory between tasks: the last dataset and the last few problems, which methods share."""

    def __init__(self, registry: Registry | None = None, share: int = 1) -> None:
        self.registry = registry or load_plugins().registry
        self.share = share
        """How many workers share this machine's memory."""
        self._data: tuple[str, Data] | None = None
        self._problems: dict[tuple[str, str], Problem] = {}
        """By split and generator."""

    def run(self, task: Task, tell: Tell = lambda epochs: None) -> Iterator[JobResult | Apart]:
        """Do a task's jobs, as one stacked model where they can be; results come as they are ready."""
        if len(task.jobs) == 1:
            yield self._one(task.jobs[0], task, tell)
            return
        names = {role: name for role, (name, _) in task.jobs[0].run_config().components.items()}
        with blame(self.registry, "backbone", names["backbone"]), blame(self.registry, "estimator", names["estimator"]):
            pair = [self._trainer(job, task) for job in (task.jobs[0], task.jobs[-1])]
            reason = why_it_does_not_pay(pair) or why_not(pair)
            if reason:
                yield Apart(reason)
                return
            room = max(1, models_that_fit(pair[0]) // self.share)
            for start in range(0, len(task.jobs), room):
                yield from self._together(task.jobs[start : start + room], task, tell)

    def _trainer(self, job: Job, task: Task) -> Trainer:
        config = job.run_config()
        estimator, backbone = (config.create(role, self.registry) for role in ("estimator", "backbone"))
        training = with_device(config.training, task.device)
        with torch.random.fork_rng(devices=[]):
            return make_trainer(self.problem(job, config, task), estimator, backbone, training, job.seed)

    def _together(self, jobs: Sequence[Job], task: Task, tell: Tell) -> Iterator[JobResult]:
        """Train models in one set of tensors; the results are those that each would have alone."""
        start = time.perf_counter()
        trainers, sets = [], []
        for job in jobs:  # its problem is fresh in memory, and may have left it when the last job is reached
            trainers.append(self._trainer(job, task))
            sets.append(self.problem(job, job.run_config(), task).train_candidates)
        records: list[list[EpochRecord]] = [[] for _ in jobs]
        ends: list[str] = ["" for _ in jobs]
        groups = [Group(places=tuple(range(len(jobs))))] if len(jobs) > 1 else None
        for outcomes in train_stacked(trainers, int(jobs[0].config["epochs"]), groups=groups):
            for place, outcome in enumerate(outcomes):
                if isinstance(outcome, DivergedError):
                    ends[place] = str(outcome)
                else:
                    records[place].append(outcome)
            tell(len(jobs))
        seconds = (time.perf_counter() - start) / len(jobs)
        for job, candidates, own, message in zip(jobs, sets, records, ends, strict=True):
            status = DIVERGED if message else FINISHED
            yield self.result(job, candidates, own, status, message, seconds, stacked=len(jobs))

    def _one(self, job: Job, task: Task, tell: Tell) -> JobResult:
        config = job.run_config()
        problem = self.problem(job, config, task)
        training = with_device(config.training, task.device)
        pruner = Pruner([task.peers[peer] for peer in job.peers]) if job.peers else None
        records: list[EpochRecord] = []

        def on_epoch(record: EpochRecord) -> None:
            records.append(record)
            tell(1)
            if pruner is not None and pruner.hopeless(record.epoch, _goodness(record, task.rule)):
                raise _PrunedError

        start = time.perf_counter()
        status, message = FINISHED, ""
        names = {role: name for role, (name, _) in config.components.items()}
        try:
            with (
                blame(self.registry, "backbone", names["backbone"]),
                blame(self.registry, "estimator", names["estimator"]),
            ):
                estimator, backbone = (config.create(role, self.registry) for role in ("estimator", "backbone"))
                run_trial(problem, estimator, backbone, training, job.seed, on_epoch)
        except DivergedError as error:
            status, message = DIVERGED, str(error)
        except _PrunedError:
            status, message = PRUNED, f"stopped after epoch {len(records)}: below the median of earlier points"
        if status != FINISHED:
            tell(config.training.epochs - len(records))
        seconds = time.perf_counter() - start
        return self.result(job, problem.train_candidates, records, status, message, seconds, stacked=1)

    def result(
        self,
        job: Job,
        candidates: CandidateSets,
        records: list[EpochRecord],
        status: str,
        message: str,
        seconds: float,
        *,
        stacked: int,
    ) -> JobResult:
        """Put a job's result together."""
        names = records[0].metrics if records else {}
        return JobResult(
            job=job,
            status=status,
            message=message,
            history={name: [record.metrics[name] for record in records] for name in names},
            candidates_hash=candidates.content_hash,
            mean_size=candidates.mean_size,
            seconds=round(seconds, 3),
            plan={"threads": torch.get_num_threads(), "stacked": stacked, "torch": torch.__version__},
            ended_at=int(time.time() * 1000),
        )

    def data(self, config: RunConfig, task: Task) -> Data:
        """Return the dataset, from memory if it was the last one used."""
        name, _ = config.components["dataset"]
        key = f"{task.data_dir} {config.components['dataset']}"
        if self._data is None or self._data[0] != key:
            self._problems.clear()
            self._data = None  # let go of the old one before the new one is read
            with blame(self.registry, "dataset", name):
                self._data = (key, self.load(config, task))
        return self._data[1]

    def load(self, config: RunConfig, task: Task) -> Data:
        """Read the dataset from where the task says it is."""
        data: Data = config.create("dataset", self.registry).load(task.data_dir)
        return data

    def problem(self, job: Job, config: RunConfig, task: Task) -> Problem:
        """Return a job's problem: the same split and sets for every method of a seed."""
        data = self.data(config, task)
        wanted = config.training
        clean = clean_parts(job, config, self.registry)
        generator = config.components.get("generator")
        split = repr((wanted.seed, wanted.validation, wanted.test, job.fold, job.folds, sorted(clean)))
        key = (split, repr(generator))
        if key not in self._problems:
            while self._problems and inputs_bytes(self._problems.values()) > KEPT_BYTES:
                self._problems.pop(next(iter(self._problems)))
            made = config.create("generator", self.registry) if generator and data.candidates is None else None
            at_work = ("dataset", data_name(config)) if made is None else ("generator", made.name)
            with blame(self.registry, *at_work):
                self._problems[key] = make_problem(
                    data,
                    made,
                    seed=wanted.seed,
                    validation=wanted.validation,
                    test=wanted.test,
                    fold=(job.fold, job.folds) if job.folds > 1 else None,
                    clean=clean,
                    twin=next((known for (own, _), known in self._problems.items() if own == split), None),
                )
        return self._problems[key]


def clean_parts(job: Job, config: RunConfig, registry: Registry) -> frozenset[str]:
    """Return the parts whose true labels a job may see: all for a reported trial; never the test part to select.

    A selection job sees validation labels only under the oracle rule, and training labels only where the estimator
    declares that it needs them.
    """
    if job.purpose == "trial":
        return frozenset(PARTS)
    estimator = registry.get("estimator", config.components["estimator"][0])
    found = {"train"} if "true_labels" in estimator.needs else set()
    return frozenset(found | ({"validation"} if job.oracle else set()))


def inputs_bytes(problems: Iterable[Problem]) -> int:
    """Return the memory that problems' inputs take; twins share theirs."""
    parts = {id(part): part for each in problems for part in (each.train_x, each.validation_x, each.test_x)}
    return sum(part.nbytes for part in parts.values())


def data_name(config: RunConfig) -> str:
    """Return the name of a configuration's dataset."""
    return config.components["dataset"][0]


def with_device(training: Training, device: str) -> Training:
    """Return the training settings for a device."""
    return attrs.evolve(training, device=device)


def _goodness(record: EpochRecord, rule: str) -> float:
    from wsl_toolkit.studies.selection import METRICS

    metric, sign = METRICS[rule]
    return sign * record.metrics[metric]


__all__ = ["Apart", "Workshop", "clean_parts", "goodness_by_epoch"]
