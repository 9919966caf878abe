"""Studies: settings x methods x search space x trials, selected without cheating, run once and never twice."""

from __future__ import annotations

from wsl_toolkit.studies.description import Method, Search, Study, StudySetting
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.rule import Selection

__all__ = ["Method", "Search", "Selection", "Study", "StudySetting", "from_dict"]
