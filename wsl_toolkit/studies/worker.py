"""What a worker does with a task: load the data once, build each problem once, train, and hand results back.

Workers know neither the study's folder nor MLflow: the driver alone writes, so that executors need no shared disk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch

from wsl_toolkit.components import Backbone
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.loading import load_data
from wsl_toolkit.data.problem import PARTS, Problem, make_problem
from wsl_toolkit.errors import PluginError
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.code_identity import changes, code_of, digest_of
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs.features import NO_CACHE, FeatureMaker, cache_in, check_frozen, head_of
from wsl_toolkit.runs.plans import choices_in
from wsl_toolkit.studies.jobs import DIVERGED, FINISHED, PRUNED, Job, JobResult
from wsl_toolkit.studies.search import Pruner
from wsl_toolkit.studies.tasks import Task
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.config import RunConfig
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.metrics import rules
from wsl_toolkit.training.train import JobListener, Trained, TrainingJob, inputs_bytes, train, why_one_by_one
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

Tell = Callable[[int], None]
"""Called with the number of single-model epochs that have just been done."""

KEPT_BYTES = 2 * 2**30
"""How much a worker remembers of problems that the next method will want again: five trials of MNIST fit."""


@attrs.frozen
class Apart:
    """A worker's advice: train these jobs one by one, because …"""

    reason: str


class TaskWorker:
    """Trains tasks; keeps the last dataset and the last few problems, which methods share, between them."""

    def __init__(self, registry: Registry | None = None, share: int = 1) -> None:
        self.registry = registry or load_plugins().registry
        self.share = share
        """How many workers share this machine's memory."""
        self._data: tuple[str, Data] | None = None
        self._features: tuple[str, Data] | None = None
        """What a frozen network made of that data."""
        self._problems: dict[tuple[str, str], Problem] = {}
        """By split, and by generator and transform."""

    def run(self, task: Task, tell: Tell = lambda epochs: None) -> Iterator[JobResult | Apart]:
        """Train a task's jobs, as one stack where there are several; or advise to train them apart."""
        names = {role: name for role, (name, _) in task.jobs[0].run_config().components.items()}
        codes = {job.id: self._code(job, task) for job in task.jobs}
        jobs = [self._training_job(job, task, tell, codes[job.id]) for job in task.jobs]
        with (
            attributed(self.registry, "backbone", names["backbone"]),
            attributed(self.registry, "estimator", names["estimator"]),
        ):
            if len(jobs) > 1 and (reason := why_one_by_one(jobs)):
                yield Apart(reason)
                return
            choices = None if task.home is None else choices_in(task.home)
            done = train(jobs, share=self.share, keep_diverged=True, choices=choices)
            for job, trained in zip(task.jobs, done, strict=True):
                tell(int(job.config["epochs"]) - len(trained.records))
                yield job_result(job, trained, codes[job.id])

    def _code(self, job: Job, task: Task) -> dict[str, str]:
        """Return the code that is about to compute a job, if it is the one that the study was started with."""
        here = code_of(self.registry, job.named(self.registry))
        wanted = task.codes.get(job.id, here)
        if here != wanted:
            raise PluginError(
                f"the code changed while the study was running ({'; '.join(changes(wanted, here))}): start it again, "
                "so that no cell mixes results of two codes"
            )
        return here

    def _training_job(self, job: Job, task: Task, tell: Tell, code: dict[str, str]) -> TrainingJob:
        config = job.run_config()
        return TrainingJob(
            problem=lambda: self.problem(job, config, task),
            estimator=config.create("estimator", self.registry),
            backbone=self._trained(config),
            training=attrs.evolve(config.training, device=task.device),
            seed=job.seed,
            checkpoints=lambda problem: _checkpoints(job, task, problem, code),
            listener=_Follower(job, task, tell),
            callbacks=config.create_callbacks(self.registry),
        )

    def _trained(self, config: RunConfig) -> Backbone:
        """Return what is trained: the backbone, or the head of a frozen one."""
        backbone: Backbone = config.create("backbone", self.registry)
        check_frozen(backbone, config.training)
        return head_of(backbone, self.registry) if backbone.frozen else backbone

    def data(self, config: RunConfig, task: Task) -> Data:
        """Return the dataset, from memory if it was the last one used."""
        name, _ = config.components["dataset"]
        key = f"{task.data_dir} {config.components['dataset']}"
        if self._data is None or self._data[0] != key:
            self._problems.clear()
            self._features = self._data = None  # let go of the old one before the new one is read
            with attributed(self.registry, "dataset", name):
                self._data = (key, self.load(config, task))
        return self._data[1]

    def load(self, config: RunConfig, task: Task) -> Data:
        """Read the dataset from where the task says it is."""
        return load_data(config.create("dataset", self.registry), task.data_dir)

    def features(self, config: RunConfig, task: Task) -> tuple[str, Data]:
        """Return the data to train on with a name for its inputs: its own, or a frozen backbone's features of them."""
        data = self.data(config, task)
        backbone: Backbone = config.create("backbone", self.registry)
        if not backbone.frozen:
            return "", data
        network = repr(attrs.evolve(backbone, frozen_head=""))
        if self._features is None or self._features[0] != network:
            cache = cache_in(task.home) if task.home is not None else NO_CACHE
            maker = FeatureMaker(registry=self.registry, data_dir=task.data_dir, cache=cache, device=task.device)
            self._features = (network, maker.embedded(data, backbone))
        return self._features

    def problem(self, job: Job, config: RunConfig, task: Task) -> Problem:
        """Return a job's problem: the same split and sets for every method of a seed."""
        network, data = self.features(config, task)
        wanted = config.training
        clean = clean_parts(job, config, self.registry)
        generator = config.components.get("generator")
        split = repr(
            (wanted.seed, wanted.validation, wanted.test, wanted.subset, job.fold, job.folds, sorted(clean), network)
        )
        transform = config.components.get("transform")
        key = (split, repr((generator, transform)))
        if key not in self._problems:
            while self._problems and inputs_bytes(self._problems.values()) > KEPT_BYTES:
                self._problems.pop(next(iter(self._problems)))
            made = config.create("generator", self.registry) if generator and data.candidates is None else None
            at_work = ("dataset", data_name(config)) if made is None else ("generator", made.name)
            if transform is not None:
                at_work = ("transform", transform[0])
            with attributed(self.registry, *at_work):
                self._problems[key] = make_problem(
                    data,
                    made,
                    seed=wanted.seed,
                    validation=wanted.validation,
                    test=wanted.test,
                    subset=wanted.subset,
                    fold=(job.fold, job.folds) if job.folds > 1 else None,
                    clean=clean,
                    transform=config.create("transform", self.registry) if transform is not None else None,
                    sibling=next((known for (own, _), known in self._problems.items() if own == split), None),
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
    found = {"train"} if estimator.reads_true_labels() else set()
    return frozenset(found | ({"validation"} if job.oracle else set()))


def data_name(config: RunConfig) -> str:
    """Return the name of a configuration's dataset."""
    return config.components["dataset"][0]


class _Follower(JobListener):
    """Counts epochs, and ends a training that is below the median of its peers."""

    def __init__(self, job: Job, task: Task, tell: Tell) -> None:
        self.tell = tell
        self.metric = rules()[task.rule]
        self.pruner = Pruner([task.peers[peer] for peer in job.peers]) if job.peers else None

    def on_train_start(self, problem: Problem, checkpoints: TrialCheckpoints) -> None:
        """Count the epochs that a checkpoint has behind it."""
        self.tell(len(checkpoints.past.records))

    def on_epoch_end(self, record: EpochRecord) -> bool | None:
        """Count an epoch; say whether the training is not worth going on with."""
        self.tell(1)
        goodness = self.metric.sign * record.metrics.get(self.metric.name, math.nan)
        return self.pruner is not None and self.pruner.hopeless(record.epoch, goodness)


def _checkpoints(job: Job, task: Task, problem: Problem, code: dict[str, str]) -> TrialCheckpoints:
    """Return where a job's state is saved: nowhere, unless the worker shares a disk with the driver.

    What other code has saved lies elsewhere, and is not gone on with.
    """
    if task.checkpoints is None:
        return TrialCheckpoints()
    files = Checkpoints(task.checkpoints / f"{job.id}.{digest_of(code)}", note=lambda text: None)
    identity = {"job": job.id, "candidate sets": problem.train_candidates.content_hash}
    return TrialCheckpoints(files, identity, last=False, codes=[code])


def _shown(plan: dict[str, Any]) -> dict[str, Any]:
    """Return what of a plan may differ between two runs on one machine."""
    return {name: plan[name] for name in ("threads", "prefetch", "chunk", "source") if name in plan}


def job_result(job: Job, trained: Trained, code: dict[str, str]) -> JobResult:
    """Return a job's result from what was trained, and by which code."""
    status, message = FINISHED, ""
    if trained.error is not None:
        status, message = DIVERGED, str(trained.error)
    elif trained.ended_by == "listener":
        status, message = PRUNED, f"stopped after epoch {len(trained.records)}: below the median of earlier points"
    names = dict.fromkeys(name for record in trained.records for name in record.metrics)
    return JobResult(
        job=job,
        status=status,
        message=message,
        history={name: [record.metrics.get(name, math.nan) for record in trained.records] for name in names},
        best_epoch=trained.best_epoch,
        candidates_hash=trained.candidates_hash,
        mean_size=trained.mean_size,
        seconds=round(trained.seconds, 3),
        plan={**_shown(trained.plan), "stacked": trained.stacked, "torch": torch.__version__},
        ended_at=int(time.time() * 1000),
        code=code,
    )


__all__ = ["Apart", "TaskWorker", "clean_parts", "job_result"]
