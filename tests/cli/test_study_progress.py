"""What a study shows while a frozen network computes its features."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from wsl_toolkit.cli.study_progress import StudyBars, StudyLines
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.plan import compute_features


def test_a_study_says_how_far_its_features_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    backbone = {"name": "mlp", "widths": [8], "frozen": True}
    setting = {"dataset": "digits", "generator": "mcl-skewed", "backbone": backbone}
    study = from_dict({"name": "frozen", "settings": [setting], "methods": ["ppl"]}, "test")
    notes: list[str] = []
    shown: list[tuple[int, int]] = []
    arguments = (study, load_plugins().registry, tmp_path, "cpu", notes.append, lambda *each: shown.append(each))
    compute_features(*arguments)
    assert notes == ["a frozen network runs over the 1,797 examples of digits, once"]
    assert shown[-1] == (1797, 1797)
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)
    compute_features(*arguments)  # they are there
    assert len(notes) == 1


def test_each_dataset_has_a_bar_of_its_own() -> None:
    out = StringIO()
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TextColumn("{task.fields[epochs]}"))
    with Progress(*columns, console=Console(file=out, force_terminal=True, width=80), auto_refresh=False) as bars:
        listener = StudyBars(bars)
        for done, of in ((50, 100), (100, 100), (7, 30)):
            listener.features(done, of)
        listener.begin(0, 4)
        assert [(task.description, task.completed, task.total) for task in bars.tasks] == [
            ("features", 100, 100),
            ("features", 7, 30),
            ("runs", 0, 4),
        ]
        bars.refresh()
    assert "100/100" in out.getvalue()


def test_in_a_pipe_there_is_a_line_at_the_end_at_least(capsys: pytest.CaptureFixture[str]) -> None:
    listener = StudyLines()
    listener.features(50, 1000)
    assert capsys.readouterr().err == ""
    listener.features(1000, 1000)
    assert capsys.readouterr().err == "features of 1,000/1,000 examples\n"
