"""Running small studies below a temporary directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_study import SMALL

from wsl_toolkit.cli.study_progress import SilentStudy
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.driver import check_study, run_study
from wsl_toolkit.studies.executor import Executor, Inline
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.store import StudyFolder


@pytest.fixture
def small() -> dict[str, Any]:
    return {**SMALL}


@pytest.fixture
def run_in(tmp_path: Path) -> Callable[..., list[CellState]]:
    """Run a study below a temporary directory, in this process and without MLflow unless told otherwise."""

    def run(
        study: Study | dict[str, Any], *, home: Path = tmp_path, executor: Executor | None = None, outbox: Any = None
    ) -> list[CellState]:
        description = study if isinstance(study, Study) else from_dict(study, "test")
        registry = load_plugins().registry
        folder = StudyFolder(home, description.name)
        folder.create()
        check_study(description, folder, registry, home)
        folder.write_study(description)
        return run_study(description, folder, registry, executor or Inline(), SilentStudy(), outbox, data_dir=home)

    return run
