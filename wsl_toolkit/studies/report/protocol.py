"""How a study's numbers came about, for its report: training settings, search, selection, versions."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from wsl_toolkit.plugins.code_identity import UNKNOWN
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.codes import codes_of
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.report.tables import Entry, Table, oracle_mark
from wsl_toolkit.version import __version__

TRAINING = {
    "epochs": "epochs",
    "batch_size": "batch size",
    "optimizer": "optimiser",
    "momentum": "momentum",
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "scheduler": "schedule",
    "validation": "share held out for validation",
    "test": "share held out for testing, where the data has no test part",
}


def protocol_table(study: Study, states: Sequence[CellState]) -> Table:
    """Return the protocol: what every run was trained with, what was searched and how it was chosen, and by what."""
    rows = [
        *((words, _over_cells(states, name)) for name, words in TRAINING.items()),
        ("trials", f"{study.trials_words}, seeds from {study.seed}; each has its own split and candidate sets"),
        *_search_rows(study),
        *_code_rows(states),
        ("versions of this report", versions()),
    ]
    if found := commit():
        rows.append(("commit of the toolkit", found))
    return Table(
        key="protocol",
        title=f"Protocol{oracle_mark(study)}",
        columns=("what", "how"),
        rows=tuple((Entry(what), Entry(how)) for what, how in rows if how),
        labels=2,
        note="Test accuracy and risk are the last epoch's. All methods see the same splits, sets and initial weights.",
    )


def _over_cells(states: Sequence[CellState], name: str) -> str:
    """Return a training setting's value, or each of its values with how many cells have it."""
    counts: dict[str, int] = {}
    for state in states:
        trial = next((job for job in state.all_jobs() if job.purpose == "trial"), None)
        if name in state.cell.space:
            value = "searched"
        elif trial is not None:
            value = _text(trial.config.get(name))
        else:
            continue
        counts[value] = counts.get(value, 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({count} cells)" for value, count in counts.items())


def _code_rows(states: Sequence[CellState]) -> list[tuple[str, str]]:
    """Return for each component, and for the toolkit, which code made the results."""
    found: dict[str, list[str]] = {}
    for state in states:
        for code in codes_of(state):
            for name, provider in (code or {"all components": UNKNOWN}).items():
                if provider not in found.setdefault(name, []):
                    found[name].append(provider)
    return [(f"code of {name}", ", ".join(providers)) for name, providers in sorted(found.items())]


def _search_rows(study: Study) -> list[tuple[str, str]]:
    if not any(cell.space for cell in study.cells()):
        return [("search", "nothing was searched")]
    search = study.search
    sampled = "" if search.strategy == "grid" else f", {search.points} points in batches of {search.batch}"
    pruned = ", hopeless points stopped early" if search.prune else ""
    length = f", {search.epochs} epochs" if search.epochs is not None else ", as long as a trial"
    rows = [("search", f"{search.strategy}{sampled}{length}{pruned}")]
    rows += [(f"searched: {name}", _text(values)) for name, values in search.space.items()]
    for method in study.methods:
        rows += [(f"searched: {name}, for {method.label}", _text(values)) for name, values in method.space.items()]
    often = "anew for each trial" if study.selection.per_trial else "once, on the first trial's problem"
    return [*rows, ("selection", f"{study.selection}, {often}; ties go to the stronger weight decay")]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, dict) and "name" in value:  # an optimiser or a schedule with options
        options = ", ".join(f"{key} = {_text(item)}" for key, item in value.items() if key != "name")
        return f"{value['name']} ({options})" if options else str(value["name"])
    if isinstance(value, dict):
        return f"{_text(value['low'])} to {_text(value['high'])}{', log scale' if value.get('log') else ''}"
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def versions() -> str:
    """Return the versions of what computes and draws."""
    named = [f"{name} {metadata.version(name)}" for name in ("torch", "numpy")]
    return ", ".join([f"wsl-toolkit {__version__}", *named, f"Python {platform.python_version()}"])


def commit() -> str:
    """Return the commit of the checkout that the toolkit is used from, and whether it was changed; else nothing."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        found, changed = (
            subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
            ).stdout.strip()
            for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found + (", with changes" if changed else "")
