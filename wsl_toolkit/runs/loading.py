"""What a run left behind, read back: its configuration, its trials, their models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from wsl_toolkit.data.problem import Problem
from wsl_toolkit.errors import CheckpointError, DataError
from wsl_toolkit.networks import plain
from wsl_toolkit.runs.folder import RunFolder, children_of
from wsl_toolkit.runs.session import Parts
from wsl_toolkit.runs.tracked_trial import finished_trial, trial_problem
from wsl_toolkit.system.toml_files import read_toml
from wsl_toolkit.training.build import make_model
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.config import RunConfig, from_dict
from wsl_toolkit.training.jobs import TrialOutcome
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints


def config_of(folder: RunFolder) -> RunConfig:
    """Return a run's configuration."""
    file = folder.path / "config.toml"
    return from_dict(read_toml(file), str(file))


def trial_folders(folder: RunFolder) -> list[RunFolder]:
    """Return the folders of a run's trials by their seeds: of a run with one trial, its own."""
    if config_of(folder).training.trials == 1:
        return [folder]
    return [found for _, found in sorted(children_of(folder).items())]


def outcome_of(folder: RunFolder) -> TrialOutcome:
    """Return what a trial came to, or how far it has come."""
    config = config_of(folder)
    found = finished_trial(folder, config.training.epochs)
    if found is not None:
        return found
    records = tuple(timed.record for timed in folder.records())
    return TrialOutcome(
        seed=config.training.seed,
        records=records,
        candidates_hash=_digest(folder, "labels"),
        mean_size=float("nan"),
        seconds=sum(record.seconds for record in records),
    )


def trial_model(folder: RunFolder, config: RunConfig, parts: Parts) -> tuple[nn.Module, Problem]:
    """Return a trial's network with the weights that its training left it with, and the problem that it learned."""
    digest, then = parts.data.digest(), _digest(folder, "training")
    if then not in ("", digest):
        raise DataError(
            f"this is not the data that run {folder.run_id} learned from: its digest is {digest[:12]}, and was "
            f"{then[:12]} then"
        )
    problem = trial_problem(config, parts, config.training.seed)
    if _digest(folder, "labels") not in ("", problem.train_candidates.content_hash):
        raise DataError(
            f"the candidate sets of run {folder.run_id} cannot be drawn again: the toolkit or a plugin changed"
        )
    checkpoints = TrialCheckpoints(Checkpoints(folder.path / "checkpoints"))
    if checkpoints.place is None:
        raise CheckpointError(f"run {folder.run_id} has no checkpoint in {folder.path}, and so no model")
    with torch.random.fork_rng(devices=[]):
        network = make_model(
            problem, parts.estimator, parts.backbone, config.training.augmentation, config.training.seed, start=False
        )
    return plain(checkpoints.restore_model(network)).eval(), problem


def _digest(folder: RunFolder, context: str) -> str:
    inputs: list[dict[str, Any]] = folder.fact("inputs", [])
    return next((str(item["digest"]) for item in inputs if item.get("context") == context), "")


def data_dir_of(folder: RunFolder) -> Path:
    """Return where a run looked for its data."""
    return Path(folder.fact("data_dir", "data"))
