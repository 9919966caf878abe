"""The model of a tracked run: what it trained, in the form in which `wsl fit` leaves its models."""

from __future__ import annotations

from pathlib import Path

from wsl_toolkit.data.given import Given
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.own_data.model_file import Model, assembled
from wsl_toolkit.parameters import values_of
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs.features import cache_in
from wsl_toolkit.runs.folder import RunFolder
from wsl_toolkit.runs.loading import config_of, data_dir_of, trial_folders, trial_model
from wsl_toolkit.runs.runner import load_parts


def model_of_run(folder: RunFolder, registry: Registry, data_dir: Path | None = None) -> Model:
    """Return the network of a run's last checkpoint with its preprocessing, which is learned again from its data.

    Without a `data_dir` the data is looked for where the run found it.
    """
    if not (folder.path / "config.toml").is_file():
        raise ConfigError(
            f"run {folder.run_id} is not one of `wsl run`: for a fit, give the folder that `wsl fit --out` wrote"
        )
    trials = trial_folders(folder)
    if len(trials) != 1:
        known = ", ".join(f"{trial.run_id} (seed {config_of(trial).training.seed})" for trial in trials)
        raise ConfigError(f"run {folder.run_id} has {len(trials)} trials: give one of them: {known}")
    config = config_of(folder).resolved(registry)
    if config.components["dataset"][0] == Given.name:
        raise ConfigError(
            f"run {folder.run_id} learned from data that was given as a Python object, without which its "
            "preprocessing is not known: load it in Python, with wsl_toolkit.load_run(…, data=…)"
        )
    where = data_dir_of(folder) if data_dir is None else data_dir
    parts = load_parts(config, registry, where, cache=cache_in(folder.home))
    network, problem = trial_model(folder, config, parts)
    about = {
        **{part.role: {"name": part.name, **values_of(part)} for part in (parts.estimator, parts.backbone)},
        "training": config.training.to_dict(),
        "run": folder.run_id,
        "input_dtype": str(parts.data.raw.x.dtype).removeprefix("torch."),
    }
    return assembled(network, problem.whole_transform, parts.data.raw, about)
