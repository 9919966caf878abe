"""Names that plugins and saved models of release 0.1 use can still be imported, and are the new ones."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("wsl_toolkit.files", "wsl_toolkit.system.files", "write_atomically"),
        ("wsl_toolkit.formats.mat_files", "wsl_toolkit.data.formats.mat_files", "read_variables"),
        ("wsl_toolkit.formats.paths", "wsl_toolkit.data.formats.paths", "locate"),
        ("wsl_toolkit.formats.readers", "wsl_toolkit.data.formats.readers", "Csv"),
        ("wsl_toolkit.serving", "wsl_toolkit.own_data.serving", "_load_pyfunc"),
        ("wsl_toolkit.labels", "wsl_toolkit.labels.candidate_sets", "CandidateSets"),
        ("wsl_toolkit.data", "wsl_toolkit.data.dataset", "Data"),
        ("wsl_toolkit.plugins", "wsl_toolkit.plugins.loading", "load_plugins"),
    ],
)
def test_an_old_name_is_the_new_one(old: str, new: str, name: str) -> None:
    assert getattr(importlib.import_module(old), name) is getattr(importlib.import_module(new), name)
