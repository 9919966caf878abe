"""Which studies were started here, and where their cells stand: from the folders alone, without MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.errors import ConfigError, did_you_mean
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.store import StudyFolder, describe_point, known_studies

if TYPE_CHECKING:
    from wsl_toolkit.studies.cells import CellState

HOME = Path("wsl-runs")


def started_study(name: str) -> tuple[StudyFolder, Study]:
    """Return a study that was started in this directory, or say which ones were."""
    folder = StudyFolder(HOME, name)
    if not folder.exists:
        known = known_studies(HOME)
        hint = did_you_mean(name, known) or (f" Started here: {', '.join(known)}." if known else "")
        raise ConfigError(f"no study {name!r} was started in {HOME.resolve()}.{hint}")
    return folder, folder.read_study()


def status_row(state: CellState) -> dict[str, Any]:
    """Return where a cell stands, as plain values."""
    done = state.known - len(state.missing)
    word = "complete" if state.done else "failed" if state.error else "open" if done == 0 else "under way"
    return {
        "setting": state.cell.setting.label,
        "method": state.cell.method.label,
        "done": done,
        "planned": state.planned,
        "chosen": "; ".join(describe_point(point) for point in state.points),
        "state": word if not state.error else f"{word}: {state.error}",
    }
