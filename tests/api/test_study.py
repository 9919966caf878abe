"""Studies from Python: described in every form, run and resumed, and shared with the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
from click.testing import CliRunner

import wsl_toolkit as wsl
from wsl_toolkit.cli import main
from wsl_toolkit.errors import ConfigError, DataError

pytestmark = pytest.mark.usefixtures("small_pictures")

PARTS: dict[str, Any] = {
    "name": "tiny",
    "settings": [{"dataset": "digits", "generator": {"name": "mcl-skewed", "alpha": 0.5}, "backbone": "linear"}],
    "methods": ["ppl", {"estimator": {"name": "cc"}, "label": "classifier-consistent"}],
    "training": {"epochs": 2, "batch_size": 256},
    "search": {"epochs": 1, "space": {"lr": [0.05, 0.1]}},
    "trials": 2,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_database_in: Any) -> Path:
    fresh_database_in(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def command(*arguments: str) -> Any:
    done = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout[done.stdout.index("{") :])


def test_a_study_is_described_by_parts_a_dict_objects_or_a_file(here: Path) -> None:
    by_parts = wsl.Study(**PARTS)
    with_objects = wsl.Study(
        {
            **PARTS,
            "settings": [
                {
                    "dataset": wsl.component("dataset", "digits"),
                    "generator": wsl.component("generator", "mcl-skewed", alpha=0.5),
                    "backbone": "linear",
                }
            ],
        }
    )
    (here / "tiny.toml").write_text(tomli_w.dumps(PARTS))
    assert by_parts.description == wsl.Study(PARTS).description == with_objects.description
    assert by_parts.description == wsl.Study("tiny.toml").description == wsl.Study(by_parts.description).description
    assert wsl.Study("paper-table-3", quick=True).name == "paper-table-3-quick"
    assert "1 settings x 2 methods, 2 trials" in repr(by_parts)


def test_it_is_run_in_parts_shared_with_the_command_and_never_done_twice(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = wsl.Study(**PARTS)
    with pytest.raises(ConfigError, match="has no results yet"):
        study.table()
    assert list(study.status()["state"]) == ["open", "open"]
    study.run(methods=["ppl"])
    assert dict(zip(study.status()["method"], study.status()["state"], strict=True)) == {
        "ppl": "complete",
        "classifier-consistent": "open",
    }
    (here / "tiny.toml").write_text(tomli_w.dumps(PARTS))
    told = command("study", "run", "tiny.toml", "--executor", "inline", "--quiet")
    assert told["complete"]
    trials = study.trials()
    assert len(trials) == 4
    capsys.readouterr()
    study.run(verbose=True)
    assert "8 of 8 runs are done already" in capsys.readouterr().err

    means = trials.groupby("method", sort=False)["test/accuracy"].mean()
    for cell in told["cells"]:
        assert cell["metrics"]["test/accuracy"]["mean"] == pytest.approx(means[cell["method"]])
    table = study.table()
    assert table.loc[0, "ppl"] == pytest.approx(100 * means["ppl"])
    assert "±" in study.table(text=True).loc[0, "ppl"]
    assert {"lr", "score", "chosen"} <= set(study.search())
    assert study.search()["chosen"].sum() == 2
    assert study.search()["chosen"].dtype == bool
    curves = study.curves()
    assert list(curves["epoch"]) == [1, 2] * 4
    assert {"seed", "method", "test/accuracy", "train/risk"} <= set(curves)
    assert len(study.pairs()) == 1
    theirs = pd.DataFrame({"dataset": "digits", "method": ["PPL", "lw"], "test_accuracy_percent": [50.0, 60.0]})
    theirs.to_csv(here / "theirs.csv", index=False)
    beside = study.against(theirs, within=100)
    pd.testing.assert_frame_equal(beside, study.against("theirs.csv", within=100))
    assert list(beside["verdict"]) == ["within 100 points", "not run"]
    assert beside.loc[0, "ours"] == pytest.approx(100 * means["ppl"])
    assert beside.loc[0, "difference"] == pytest.approx(100 * means["ppl"] - 50)
    with pytest.raises(DataError, match="the frame of published numbers has no column 'method'"):
        study.against(theirs.drop(columns="method"))
    with pytest.raises(ConfigError, match="within must be a number of points from 0 to 100, not nan"):
        study.against(theirs, within=float("nan"))
    study.figure("accuracy").savefig(here / "accuracy.png")
    with pytest.raises(ConfigError, match=r"no figure 'acuracy'\. Did you mean 'accuracy'"):
        study.figure("acuracy")
    with pytest.raises(ConfigError, match="has no table 'acc'"):
        study.table("acc")
    assert wsl.Study("tiny").trials().equals(trials)
    assert (study.folder / "report" / "report.html").is_file()
    assert "complete" in study._repr_html_()


def test_mistakes_are_named(here: Path) -> None:
    with pytest.raises(ConfigError, match="a study is a file, a name or a dict, or else"):
        wsl.Study()
    with pytest.raises(ConfigError, match=r"unknown key 'trails'\. Did you mean 'trials'"):
        wsl.Study(**{**PARTS, "trails": 3})
    with pytest.raises(ConfigError, match="there is no study 'paper-table-33'"):
        wsl.Study("paper-table-33")
    with pytest.raises(ConfigError, match="estimator"):
        wsl.Study(**{**PARTS, "methods": [{"label": "x"}]})
