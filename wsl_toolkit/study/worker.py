"""What a worker does with a task: load the data once, build each problem once, train, and hand results back.

Workers know neither the study's folder nor MLflow: the driver alone writes, so that executors need no shared disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch

from wsl_toolkit.blame import blame
from wsl_toolkit.config import RunConfig, Training
from wsl_toolkit.data import Data
from wsl_toolkit.engine import EpochRecord
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.plugins import load_plugins
from wsl_toolkit.problem import PARTS, Problem, make_problem
from wsl_toolkit.registry import Registry
from wsl_toolkit.study.cells import goodness_by_epoch
from wsl_toolkit.study.jobs import DIVERGED, FINISHED, PRUNED, Job, JobResult
from wsl_toolkit.study.search import Pruner
from wsl_toolkit.study.tasks import Task
from wsl_toolkit.trial import run_trial

Tell = Callable[[int], None]
"""Called with the number of single-model epochs that have just been done."""

KEPT_PROBLEMS = 6


class _PrunedError(Exception):
    """Ends a training that is not worth going on with."""


class Workshop:
    """A worker's memory between tasks: the last dataset and the last few problems, which methods share."""

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or load_plugins().registry
        self._data: tuple[str, Data] | None = None
        self._problems: dict[str, Problem] = {}

    def run(self, task: Task, tell: Tell = lambda epochs: None) -> Iterator[JobResult]:
        """Do a task's jobs; results come as they are ready."""
        for job in task.jobs:
            yield self._one(job, task, tell)

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
        return self.result(job, problem, records, status, message, time.perf_counter() - start, stacked=1)

    def result(
        self,
        job: Job,
        problem: Problem,
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
            candidates_hash=problem.train_candidates.content_hash,
            mean_size=problem.train_candidates.mean_size,
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
                self._data = (key, config.create("dataset", self.registry).load(task.data_dir))
        return self._data[1]

    def problem(self, job: Job, config: RunConfig, task: Task) -> Problem:
        """Return a job's problem: the same split and sets for every method of a seed."""
        data = self.data(config, task)
        wanted = config.training
        clean = clean_parts(job, config, self.registry)
        generator = config.components.get("generator")
        key = repr((generator, wanted.seed, wanted.validation, wanted.test, job.fold, job.folds, sorted(clean)))
        if key not in self._problems:
            while len(self._problems) >= KEPT_PROBLEMS:
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


def data_name(config: RunConfig) -> str:
    """Return the name of a configuration's dataset."""
    return config.components["dataset"][0]


def with_device(training: Training, device: str) -> Training:
    """Return the training settings for a device."""
    import attrs

    return attrs.evolve(training, device=device)


def _goodness(record: EpochRecord, rule: str) -> float:
    from wsl_toolkit.study.selection import METRICS

    metric, sign = METRICS[rule]
    return sign * record.metrics[metric]


__all__ = ["Workshop", "clean_parts", "goodness_by_epoch"]
