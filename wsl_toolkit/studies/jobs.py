"""Jobs: frozen descriptions of one training each, known by the hash of their content.

A job whose result by the installed code exists is never computed again: resuming, retrying and every executor rest on
that. The code is no part of a job's name, so that searches and peers are the same whatever code computes them; it is
part of a result and of its file's name.
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Any, Literal

import attrs

from wsl_toolkit.parameters import parameters_of, plain
from wsl_toolkit.plugins.code_identity import digest_of, named_in
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.system.json_files import parse_json, sealed, unsealed
from wsl_toolkit.training.config import RunConfig, Training, from_dict

FORMAT = "wsl job 1"
Purpose = Literal["selection", "trial"]
DECISIVE = (
    "epochs",
    "batch_size",
    "lr",
    "weight_decay",
    "momentum",
    "optimizer",
    "scheduler",
    "seed",
    "validation",
    "test",
)
"""Training settings that every job states. Others are stated only where they differ from their defaults, so that a
new setting does not make all finished work strange."""
INDIFFERENT = ("device", "trials")
FINISHED, DIVERGED, PRUNED = "finished", "diverged", "pruned"


@attrs.frozen(kw_only=True)
class Job:
    """One model to train: a search point (`selection`: no test labels within reach) or a reported `trial`."""

    purpose: Purpose
    config: dict[str, Any]
    """The resolved configuration, without what does not change the result (device, number of trials)."""
    data: str = ""
    """The digest of the data: a changed file makes another job."""
    fold: int = 0
    folds: int = 1
    oracle: bool = False
    """Whether a selection job may measure accuracy on held-out clean labels."""
    peers: tuple[str, ...] = ()
    """Jobs whose histories decide whether this one is pruned; empty: it is never pruned."""
    metric: str = ""
    """The plugin's metric that its study selects by: part of the code that makes its result, and, as all code, no part
    of its name."""
    weights: str = ""
    """The digest of the file with a frozen network's weights, if there is one."""

    @functools.cached_property
    def id(self) -> str:
        """The hash of everything that decides the result; data is known by its digest, not by where it lies."""
        content = attrs.asdict(self, filter=lambda field, _: field.name not in ("metric", "weights"))
        if self.weights:
            content["config"]["backbone"]["frozen_weights"] = self.weights
        if self.data:
            content["config"]["dataset"] = {"name": self.config["dataset"]["name"]}
        text = json.dumps([FORMAT, content], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def seed(self) -> int:
        """The seed that all of its random streams derive from."""
        return int(self.config["seed"])

    def run_config(self) -> RunConfig:
        """Return the configuration to run."""
        return from_dict(self.config, f"job {self.id}")

    def named(self, registry: Registry) -> tuple[tuple[str, str], ...]:
        """Return the components whose code makes its result, as (role, name); what no plugin provides is left out."""
        metrics = (("metric", self.metric),) if registry.has("metric", self.metric) else ()
        return tuple(dict.fromkeys((*named_in(self.config, registry), *metrics)))

    def to_dict(self) -> dict[str, Any]:
        """Return the job for JSON."""
        return {**attrs.asdict(self), "peers": list(self.peers)}


def job_from_dict(values: dict[str, Any]) -> Job:
    """Read a job back, or raise a ValueError, TypeError or KeyError if it is none."""
    if wrong := [name for name, kind in _JOB_KINDS.items() if name in values and type(values[name]) is not kind]:
        raise ValueError(f"{wrong[0]!r} of a job is not what it should be")
    job = Job(**{**values, "peers": tuple(values["peers"])})
    job.id  # noqa: B018 (a configuration that names no dataset has none)
    return job


def make_job(
    config: RunConfig,
    purpose: Purpose,
    *,
    data: str = "",
    fold: int = 0,
    folds: int = 1,
    oracle: bool = False,
    peers: tuple[str, ...] = (),
    metric: str = "",
    weights: str = "",
) -> Job:
    """Return the job of a resolved configuration."""
    described = config.to_dict()
    for name, parameter in parameters_of(Training).items():
        if name in INDIFFERENT or (name not in DECISIVE and described.get(name) == plain(parameter.default)):
            described.pop(name, None)
    # A JSON round trip, so that a job read from disk equals the one that was planned.
    return Job(
        purpose=purpose,
        config=json.loads(json.dumps(described)),
        data=data,
        fold=fold,
        folds=folds,
        oracle=oracle,
        peers=peers,
        metric=metric,
        weights=weights,
    )


def weights_label(config: RunConfig) -> str:
    """Return what the file of weights of a configuration's network is called among the digests of a study's data."""
    name, values = config.components["backbone"]
    if "frozen_weights" in values:
        return f"weights {values['frozen_weights']}"
    return f"weights of {name} {json.dumps({k: v for k, v in values.items() if isinstance(v, str)}, sort_keys=True)}"


@attrs.frozen(kw_only=True)
class JobResult:
    """What came of a job: one value an epoch for each metric, and where the run stood."""

    job: Job
    status: str
    """finished, diverged (the loss became NaN or infinite: a result, too) or pruned."""
    message: str = ""
    history: dict[str, list[float]]
    best_epoch: int | None = None
    """The epoch whose model was kept, where that is not the last one."""
    candidates_hash: str = ""
    mean_size: float = 0.0
    seconds: float = 0.0
    plan: dict[str, Any] = attrs.field(factory=dict)
    """How it was computed: threads, how many models were stacked; same bits are promised for the same plan."""
    ended_at: int = 0
    """Milliseconds since 1970; also the time stamp of its tracked metrics, so that sending twice changes nothing."""
    code: dict[str, str] = attrs.field(factory=dict)
    """Which code made it, as `plugins.code_identity` says it; empty in results of release 0.1."""

    @property
    def made_by(self) -> str:
        """A short name for the code that made it."""
        return digest_of(self.code)

    @property
    def final(self) -> dict[str, float]:
        """The metrics of the epoch whose model was kept."""
        place = -1 if self.best_epoch is None else self.best_epoch - 1
        return {name: values[place] for name, values in self.history.items() if values}

    def to_json(self) -> str:
        """Return the result as it is kept."""
        return sealed({**attrs.asdict(self, recurse=False), "job": self.job.to_dict()})


_KINDS: dict[str, tuple[type, ...]] = {
    "status": (str,), "message": (str,), "candidates_hash": (str,), "mean_size": (float, int), "seconds": (float, int),
    "plan": (dict,), "ended_at": (int,),
}  # fmt: skip
_JOB_KINDS = {"purpose": str, "config": dict, "data": str, "fold": int, "folds": int, "oracle": bool, "peers": list,
              "metric": str, "weights": str}  # fmt: skip


def result_from_json(text: str) -> JobResult:
    """Read a result back, or raise a ValueError, TypeError or KeyError if it is none."""
    values = unsealed(parse_json(text))
    rows = list(values["history"].values()) if isinstance(values["history"], dict) else [None]
    if not all(isinstance(row, list) and all(type(value) in (float, int) for value in row) for row in rows):
        raise ValueError("its history does not hold numbers")
    code = values.get("code", {})
    if not isinstance(code, dict) or not all(isinstance(text, str) for text in code.values()):
        raise ValueError("it does not say which code made it")
    best = values.get("best_epoch")
    if best is not None and (type(best) is not int or not 1 <= best <= min(map(len, filter(None, rows)), default=0)):
        raise ValueError("its best epoch is none of its epochs")
    if wrong := [name for name, kinds in _KINDS.items() if name in values and type(values[name]) not in kinds]:
        raise ValueError(f"{wrong[0]!r} is not what it should be")
    return JobResult(**{**values, "job": job_from_dict(values["job"])})


def training_key(config: RunConfig) -> dict[str, Any]:
    """Return the training settings that models trained together must share."""
    own = ("lr", "weight_decay", "seed", *INDIFFERENT)
    return {key: value for key, value in config.training.to_dict().items() if key not in own}
