"""The runs of a working directory as a table, read off their folders: no store is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.runs.folder import RunFolder, all_folders

if TYPE_CHECKING:
    import pandas as pd

HOME = Path("wsl-runs")
COLUMNS = ("run_id", "name", "status", "started", "seconds", "experiment", "parent")


def runs(*, trials: bool = False, home: str | Path = HOME) -> pd.DataFrame:
    """Return the tracked runs of this directory, newest first, a row each: what it was, how it ended, how well it did.

    Columns: the run's id, name, status, start and seconds, its experiment; its configuration (`estimator.name`, `lr`);
    its metrics at the epoch that was kept, means over trials (`test/accuracy`), with `…_stderr` where there are several
    trials. With `trials`, each trial of a run of several has a row of its own, whose `parent` is the run.
    """
    import pandas as pd

    rows = [_row(folder) for folder in all_folders(Path(home)) if trials or folder.fact("parent") is None]
    rows.sort(key=lambda row: row["started"], reverse=True)
    frame = pd.DataFrame(rows, columns=None if rows else list(COLUMNS))
    frame["started"] = pd.to_datetime(frame["started"], unit="ms", utc=True)
    return frame


def _row(folder: RunFolder) -> dict[str, Any]:
    started, ended = folder.fact("started"), folder.fact("ended")
    about = {
        "run_id": folder.run_id,
        "name": folder.fact("name"),
        "status": folder.fact("status"),
        "started": started,
        "seconds": (ended - started) / 1000 if ended is not None else None,
        "experiment": folder.fact("experiment"),
        "parent": folder.fact("parent"),
    }
    return {**about, **folder.fact("params", {}), **_metrics(folder)}


def _metrics(folder: RunFolder) -> dict[str, float]:
    """Return what a run came to, or what its last epoch was measured at if it has not ended."""
    summary = folder.fact("summary")
    if summary:
        return {name.removesuffix("_mean"): value for name, value in summary["values"].items()}
    result = folder.result()
    if result is not None and isinstance(result.get("metrics"), dict):
        return dict(result["metrics"])
    records = folder.records()
    return dict(records[-1].record.metrics) if records else {}
