"""A real small study, run once, for the reports to show."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown_study import DESCRIPTION

from wsl_toolkit.cli.study_progress import SilentStudy
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.driver import check_study, run_study
from wsl_toolkit.studies.executor import Inline
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.report.build import Report, build_report
from wsl_toolkit.studies.store import StudyFolder


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    home: Path = tmp_path_factory.mktemp("reported")
    study = from_dict(DESCRIPTION, "test")
    registry = load_plugins().registry
    folder = StudyFolder(home, study.name)
    folder.create()
    check_study(study, folder, registry, home)
    states = run_study(study, folder, registry, Inline(), SilentStudy(), None, data_dir=home)
    return build_report(study, states)
