"""`wsl study …` and `wsl report` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner, Result

from wsl_toolkit.cli import main
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.store import StudyFolder

pytestmark = pytest.mark.usefixtures("small_pictures")


@pytest.fixture
def wsl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return call


@pytest.mark.usefixtures("fresh_database")
def test_a_study_from_its_file_to_its_report(wsl: Any, small: dict[str, Any], tmp_path: Path) -> None:
    Path("mine.toml").write_text(tomli_w.dumps(small))
    done = wsl("study", "run", "mine.toml", "--executor", "inline", "--method", "cc")
    assert done.exit_code == 0, done.output
    assert "[1/1] CC | digits | mcl-skewed(alpha=0.8) | linear: test accuracy" in done.stderr
    assert "PARTIAL: 1 of 2 cells are complete." in done.stdout
    assert "Protocol" not in done.stdout

    standing = json.loads(wsl("study", "status", "small", "--json").stdout)
    assert [cell["state"] for cell in standing["cells"]] == ["open", "complete"]
    assert not standing["running"]
    assert "4 of 8 runs done; not running: `wsl study resume small` goes on" in wsl("study", "status", "small").stdout

    assert wsl("study", "resume", "small", "--executor", "inline", "--quiet").exit_code == 0
    standing = json.loads(wsl("study", "status", "small", "--json").stdout)
    assert {cell["state"] for cell in standing["cells"]} == {"complete"}
    assert json.loads(wsl("study", "list", "--json").stdout)["started"] == ["small"]

    shown = wsl("report", "small")
    assert "Complete: 2 cells of 2 trials each." in shown.stdout
    assert "Protocol" in shown.stdout
    assert "p-values of paired tests" in shown.stdout
    assert wsl("report", "small", "--format", "csv").stdout.count("\n") == 1 + 4
    assert "\\begin{tabular}" in wsl("report", "small", "--format", "latex").stdout
    assert wsl("report", "small", "--format", "markdown", "--out", "r.md").exit_code == 0
    assert Path("r.md").read_text().startswith("# small")
    for form, name in (("latex", "x.pdf"), ("markdown", "x.tex"), (None, "x.pdf"), ("csv", "x.html")):
        refused = wsl("report", "small", "--out", name, *(("--format", form) if form else ()))
        assert refused.exit_code == 2, refused.output
        assert not Path(name).exists()
    assert (
        "--format latex writes a .tex file, not 'x.pdf'"
        in wsl("report", "small", "--out", "x.pdf", "--format", "latex").stderr
    )
    Path("theirs.csv").write_text("dataset,method,test_accuracy_percent\ndigits,cc,90\n")
    beside = wsl("report", "small", "--format", "markdown", "--against", "theirs.csv").stdout
    assert "beside published numbers" in beside
    assert "| 90.00 |" in beside
    assert (
        "| within 100 points |"
        in wsl("report", "small", "--format", "markdown", "--against", "theirs.csv", "--within", "100").stdout
    )
    listed = wsl("report", "small", "--format", "csv", "--against", "theirs.csv").stdout
    assert listed.startswith("source,protocol,dataset,sets,network,method,published,")
    assert json.loads(wsl("report", "small", "--json", "--against", "theirs.csv").stdout)["against"][0]["trials"] > 0
    assert "--within goes with --against" in wsl("report", "small", "--within", "2").stderr
    assert wsl("report", "small", "--against", "theirs.csv", "--within", "nan").exit_code == 2
    Path("theirs.csv").write_text("dataset,method,test_accuracy_percent\nmnist,cc,90\n")
    assert "none of the 1 numbers" in wsl("report", "small", "--against", "theirs.csv").stderr
    assert wsl("report", "small", "--against", "nothing.csv").exit_code == 2
    assert wsl("report", "small", "--out", "r.tex").exit_code == 0
    assert Path("r.tex").read_text().startswith("% small")
    assert wsl("report", "small", "--out", "r.tex/inside.md").exit_code == 2
    assert json.loads(wsl("report", "small", "--json").stdout)["cells"][0]["metrics"]["test/accuracy"]["mean"] > 0
    assert wsl("report", "small", "--out", "all").stdout.count("\n") == len(list(Path("all").iterdir())) > 6
    before = {path: path.read_bytes() for path in (Path("r.tex"), *Path("all").iterdir())}
    for name in ("r.tex", "all"):
        assert "--force" in wsl("report", "small", "--out", name).stderr
        assert wsl("report", "small", "--out", name, "--against", "theirs.csv").exit_code == 2
    refused = wsl("report", "small", "--out", "theirs.csv", "--against", "theirs.csv", "--force")
    assert "would write over the input" in refused.stderr
    assert {path: path.read_bytes() for path in before} == before
    Path("r.tex").write_text("mine")
    assert wsl("report", "small", "--out", "r.tex", "--force").exit_code == 0
    assert Path("r.tex").read_text().startswith("% small")
    assert wsl("report", "small", "--out", "all", "--force").exit_code == 0
    stored = {path.name for path in (tmp_path / "wsl-runs" / "artifacts").rglob("report/*")}
    assert {"report.html", "report.md", "report.tex", "trials.csv", "accuracy.png"} <= stored


@pytest.mark.usefixtures("fresh_database")
def test_a_cell_that_fails_is_named_and_the_rest_is_reported(wsl: Any, small: dict[str, Any]) -> None:
    small["methods"] = [{"estimator": "mcl", "label": "wild", "search": {"lr": [1e30]}}, "cc"]
    Path("mine.toml").write_text(tomli_w.dumps(small))
    done = wsl("study", "run", "mine.toml", "--executor", "inline")
    assert done.exit_code == 1
    assert "study small is not complete: wild" in done.stderr
    assert "Traceback" not in done.output
    assert "PARTIAL: 1 of 2 cells are complete." in done.stdout
    states = [cell["state"] for cell in json.loads(wsl("study", "status", "small", "--json").stdout)["cells"]]
    assert states[0].startswith("failed: all 1 points of the search diverged")
    assert states[1] == "complete"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("study", "run", "nothing.toml"), "there is no study file nothing.toml"),
        (("study", "run", "paper-table-9"), "Did you mean 'paper-table-"),
        (("study", "resume", "nothing"), "no study 'nothing' was started"),
        (("study", "status", "../../etc"), "letters, digits"),
        (("report", "nothing"), "no study 'nothing' was started"),
        (("study", "run", "paper-table-3", "--quick", "--dataset", "mnst"), "has no dataset 'mnst'"),
        (("study", "run", "paper-table-3", "--alpha", "0.5"), "is not among [0.9, 0.8, 0.7]"),
        (("study", "run", "paper-table-3", "--dataset", "mnist", "--data-dir", "nowhere"), "there is no nowhere"),
        (("study", "rum"), "Did you mean 'run'"),
    ],
)
def test_a_mistake_is_one_clear_line(wsl: Any, arguments: tuple[str, ...], message: str) -> None:
    done = wsl(*arguments)
    assert done.exit_code == 2
    assert message in done.output.replace("\n", " ")
    assert "Traceback" not in done.output


def test_looking_at_studies_imports_neither_torch_nor_mlflow() -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom wsl_toolkit.cli import main\nmain(['study', 'list'], standalone_mode=False)\n"
        "heavy = [m for m in ('torch', 'mlflow', 'numpy', 'scipy', 'matplotlib') if m in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def stored(name: str) -> str:
    return (Path("wsl-runs") / "studies" / name / "study.toml").read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"search": {"space": {"lr": [0.1, -1.0]}}},
        {"search": {"space": {"estimator.levrage": [0.0]}}},
        {"search": {"strategy": "tpe", "space": {"lr": {"low": -1.0, "high": 1.0}}}},
        {"training": {"epochs": 3, "validation": 0.0}},
        {"methods": ["cc", "no-such-method"]},
        {"methods": ["cc", {"estimator": "ppl", "training": {"lr": 1.0}}]},
        {"settings": [{"dataset": "mnist", "generator": "cl", "backbone": "linear"}]},
    ],
)
def test_a_refused_study_file_leaves_the_good_description_in_place(
    wsl: Any, small: dict[str, Any], change: dict[str, Any]
) -> None:
    folder = StudyFolder(Path("wsl-runs"), "small")
    folder.create()
    folder.write_study(from_dict(small, "test"))
    before = stored("small")
    Path("mine.toml").write_text(tomli_w.dumps({**small, **change}))
    done = wsl("study", "run", "mine.toml", "--executor", "inline", "--method", "cc", "--data-dir", "nowhere")
    assert done.exit_code == 2, done.output
    assert stored("small") == before


def test_a_changed_description_says_what_changed_what_is_kept_and_what_is_new(
    wsl: Any, small: dict[str, Any], run_in: Any, tmp_path: Path
) -> None:
    Path("mine.toml").write_text(tomli_w.dumps(small))
    said = wsl("study", "run", "mine.toml", "--dry-run")
    assert said.exit_code == 0, said.output
    assert said.stdout == "study small is new here\n0 runs kept, 8 runs to be computed\n"
    assert not Path("wsl-runs").exists()

    run_in(small, home=tmp_path / "wsl-runs")
    assert wsl("study", "run", "mine.toml", "--dry-run").stdout.splitlines() == [
        "study small is described as before",
        "8 runs kept, 0 runs to be computed",
    ]
    before = stored("small")
    small |= {"trials": 3, "training": {**small["training"], "epochs": 4}, "methods": [small["methods"][0], "average"]}
    Path("mine.toml").write_text(tomli_w.dumps(small))
    assert wsl("study", "run", "mine.toml", "--dry-run").stdout.splitlines() == [
        "study small has another description than before:",
        "  trials: 2 → 3",
        "  training.epochs: 3 → 4",
        "  method average: added",
        "  method CC: removed",
        "2 runs kept, 8 runs to be computed; 6 runs of the earlier description no longer used (the files stay)",
    ]
    plan = json.loads(wsl("study", "run", "mine.toml", "--dry-run", "--json").stdout)
    assert (plan["kept"], plan["to_compute"], plan["unused"]) == (2, 8, 6)
    assert [(cell["method"], cell["kept"], cell["to_compute"]) for cell in plan["cells"]] == [
        ("PPL", 2, 3),
        ("average", 0, 5),
    ]
    assert stored("small") == before
    done = wsl("study", "run", "mine.toml", "--executor", "inline", "--method", "PPL")
    assert done.exit_code == 0, done.output
    assert "note: study small has another description than before:\n  trials: 2 → 3\n" in done.stderr
    assert stored("small") != before
