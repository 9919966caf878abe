"""What the runner is asked to do: a new run, or to go on with an old one; the same from a command and from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wsl_toolkit.data.given import Given
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.runs import runner
from wsl_toolkit.runs.folder import find_folder
from wsl_toolkit.runs.loading import config_of
from wsl_toolkit.runs.tracking.run_folders import sweep, tell
from wsl_toolkit.runs.tracking.store import HOME, Tracker, choose_uri, default_uri, redact, store_label
from wsl_toolkit.training.config import RunConfig


def new_run(
    config: RunConfig,
    *,
    experiment: str | None,
    tracking_uri: str | None,
    data_dir: Path,
    tags: Mapping[str, str],
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Return the arguments of `runner.run` for a new run."""
    name = experiment or f"wsl-{config.components['dataset'][0]}"

    def open_tracker() -> Tracker:
        tracker = Tracker(choose_uri(tracking_uri), name)
        tell(tracker, sweep(tracker.home, note))
        return tracker

    return {"config": config, "open_tracker": open_tracker, "data_dir": data_dir, "tags": dict(tags)}


def resumed_run(
    run: str,
    registry: Registry,
    *,
    tracking_uri: str | None,
    data_dir: Path | None,
    note: Callable[[str], None],
    has_data: bool = False,
    other_code: bool = False,
) -> dict[str, Any]:
    """Return the arguments of `runner.run` for a run, named by its id or its folder, that was interrupted.

    Without a `data_dir` it looks for data where the run did before. `has_data`: the data is at hand, loaded.
    """
    dead = sweep(find_folder(HOME, run).home, note)
    folder = find_folder(HOME, run)
    if config_of(folder).components.get("dataset", ("",))[0] == Given.name and not has_data:
        raise ConfigError(
            f"run {folder.run_id} learns from data that was given as a Python object: go on from Python, with "
            f"wsl_toolkit.resume({folder.run_id!r}, data=…)"
        )
    config = runner.interrupted(folder, registry)
    store = folder.fact("store")
    uri = tracking_uri or (default_uri(folder.home) if store is None else choose_uri(None))
    # A folder may come from anywhere: the address in it must not decide who gets the user's token.
    if store_label(uri, folder.home) != store:
        where = f"--tracking-uri {store}" if store is not None else "leave --tracking-uri out"
        raise ConfigError(
            f"run {folder.run_id} is tracked in {store or 'the embedded database'}, not in {redact(uri)}: name that "
            f"store if you trust it ({where})"
        )

    def open_tracker() -> Tracker:
        tracker = Tracker(uri, folder.fact("experiment"), folder.home)
        # Of the run itself the store hears when it is opened again, which may change its folder's name.
        tell(tracker, [other for other in dead if other.run_id != folder.run_id])
        return tracker

    return {
        "config": config,
        "open_tracker": open_tracker,
        "data_dir": Path(folder.fact("data_dir", "data")) if data_dir is None else data_dir,
        "tags": folder.fact("tags", {}),
        "folder": folder,
        "other_code": other_code,
    }
