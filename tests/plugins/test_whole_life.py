"""One distribution with a part for every new door, through its whole life: built, installed with pip, run, studied,
killed, resumed, upgraded and uninstalled. Its parts are the examples of the hooks' pages, and no file of the core
knows them."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from doc_blocks import blocks
from plugin_environments import ROOT, Environment, Outcome, build_wheels

from tests.changing_plugin import SOURCE
from tests.waiting import until

KINDS = ("transform", "metric", "optimizer", "callback")
PAIR = '''
from typing import ClassVar, Literal

import attrs
from wsl_toolkit import Estimator, Kind, Setting
from wsl_toolkit.losses import log_set_probability


@attrs.frozen(kw_only=True)
class Pair(Estimator):
    """Two networks, each of which learns from what the other is sure of."""

    name: ClassVar[str] = "each-other"
    assumption: ClassVar[Setting] = Setting.GENERAL
    kind: ClassVar[Kind] = Kind.HEURISTIC
    needs: ClassVar[frozenset[str]] = frozenset({"two_networks"})
    stackable: ClassVar[bool] = False
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"

    def init_state(self, candidates):
        even = candidates / candidates.sum(-1, keepdim=True)
        return {"first": even, "second": even.clone()}

    def loss(self, logits, candidates, state):
        mine = -(state["second"] * logits.log_softmax(-1)).sum(-1)
        other = state["second_logits"]
        return mine - (state["first"] * other.log_softmax(-1)).sum(-1) - log_set_probability(other, candidates)

    def update(self, logits, candidates, state):
        def sure(found):
            return found.masked_fill(~candidates, float("-inf")).softmax(-1)

        return {"first": sure(logits), "second": sure(state["second_logits"])}
'''
PLUGIN = """
from wsl_life.callback import wsl_register_callbacks
from wsl_life.metric import wsl_register_metrics
from wsl_life.optimizer import wsl_register_optimizers
from wsl_life.pair import Pair
from wsl_life.parts import Straight
from wsl_life.transform import wsl_register_transforms
from wsl_toolkit import hookimpl

WSL_API = "1.0"


@hookimpl
def wsl_register_estimators():
    return [Pair]


@hookimpl
def wsl_register_backbones():
    return [Straight]
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "wsl-life"
version = "{version}"

[project.entry-points.wsl_toolkit]
life = "wsl_life"

[tool.setuptools]
packages = ["wsl_life"]
"""
PARTS = {
    "estimator": "each-other",
    "backbone": "straight",
    "transform": "most-frequent",
    "metric": "candidate-mass",
    "optimizer": "sign-descent",
    "callback": "until-it-settles",
}
STUDY: dict[str, Any] = {
    "name": "life",
    "trials": 2,
    "training": {
        "epochs": 12,
        "batch_size": 64,
        "validation": 0.2,
        "optimizer": "sign-descent",
        "callbacks": [{"name": "until-it-settles", "tolerance": 0.0}],
    },
    "search": {"epochs": 2, "space": {"lr": [0.0005, 0.002]}},
    "selection": {"rule": "candidate-mass"},
    "settings": [{"dataset": "digits", "generator": "mcl-skewed", "backbone": "straight"}],
    "methods": ["ppl", {"estimator": "each-other", "transform": {"name": "most-frequent", "most": 2}}],
}
RUN = [
    *("run", "--estimator", "each-other", "--backbone", "straight", "--validation", "0.2", "--lr", "0.001"),
    *("--optimizer", "sign-descent", "--callback", "until-it-settles", "--callback-until-it-settles-tolerance", "0"),
    *("--transform", "most-frequent", "--monitor", "validation/candidate_mass", "--keep", "best"),
    *("--checkpoint-every", "1", "--quiet"),
]


def build(folder: Path, version: str, mean: str = ".mean()") -> Path:
    """Build the distribution's wheel, as its author would."""
    package = folder / version / "wsl_life"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(PROJECT.format(version=version))
    sources = {kind: page_example(kind) for kind in KINDS}
    assert ".sum(1).mean()" in sources["metric"]
    sources["metric"] = sources["metric"].replace(".sum(1).mean()", f".sum(1){mean}")
    sources |= {
        "__init__": PLUGIN,
        "pair": PAIR,
        "parts": SOURCE.replace("from wsl_bent.scales import SCALE", "SCALE = 1"),
    }
    for name, text in sources.items():
        (package / f"{name}.py").write_text(text)
    (wheel,) = build_wheels(folder / f"wheel-{version}", package.parent)
    return wheel


def page_example(kind: str) -> str:
    page = ROOT / "docs" / "plugin-authors" / "hooks" / f"wsl_register_{kind}s.md"
    (found,) = [block.text for block in blocks(page) if block.language == "python"]
    return found


def kill_when(environment: Environment, command: list[str], cwd: Path, happened: Callable[[], Any]) -> None:
    """Start a command, and end it and its workers without warning once something has happened."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WSL_", "PYTHON", "MLFLOW_", "PYTEST_"))}
    with subprocess.Popen(
        [str(environment.root / "bin" / "wsl"), *command],
        cwd=cwd,
        env={**kept, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as driver:
        until(lambda: driver.poll() is not None or happened(), "the moment to kill it", pause=0.005)
        assert driver.poll() is None, "it ended before it could be killed"
        os.killpg(driver.pid, signal.SIGKILL)


def results(cwd: Path) -> dict[str, Any]:
    """What a study's jobs came to, by the jobs: curves, and which code made them."""
    found = [json.loads(path.read_text()) for path in (cwd / "wsl-runs" / "jobs").glob("*.json")]
    return {json.dumps(each["job"], sort_keys=True): (each["history"], each["code"]) for each in found}


def epochs(run: Path) -> list[Any]:
    records = run / "records.jsonl"
    return [json.loads(line)["metrics"] for line in records.read_text().splitlines()] if records.exists() else []


@pytest.mark.system
def test_a_plugin_is_built_installed_run_studied_killed_resumed_upgraded_and_uninstalled(
    environment: Environment, tmp_path: Path
) -> None:
    cwd, undisturbed = tmp_path / "work", tmp_path / "undisturbed"
    for folder in (cwd, undisturbed):
        folder.mkdir()
        (folder / "life.toml").write_text(tomli_w.dumps(STUDY))
    study = ["study", "run", "life.toml", "--jobs", "1", "--quiet"]

    def wsl(*commands: list[str], where: Path = cwd) -> list[Outcome]:
        found = environment.session(*commands, cwd=where)
        for done in found:
            assert done.code == 0, done.stdout + done.stderr
        return found

    environment.install(build(tmp_path, "1.0"))
    try:
        killed, left = a_run_is_killed_and_resumed(environment, cwd, undisturbed, wsl)
        a_study_is_killed_and_resumed(environment, cwd, undisturbed, study, wsl)
        write_table(cwd / "rows.csv")
        wsl(["fit", "rows.csv", "--backbone", "straight", "--epochs", "1", "--out", "model", "--no-track"])

        environment.install(build(tmp_path, "1.1", mean=".median()"))
        plan, _, report = wsl([*study[:-1], "--dry-run"], study, ["report", "life", "--json"])
        assert "8 results were made by other code than is installed; computed anew" in plan.stdout
        assert "metric candidate-mass: wsl-life 1.0 (source " in plan.stdout
        assert "→ wsl-life 1.1 (source " in plan.stdout
        (refused,) = environment.session(["run", "--resume", left], cwd=cwd)
        assert refused.code == 2
        assert "metric candidate-mass: wsl-life 1.0 (source " in refused.stderr
        before = json.loads(report.stdout)
        assert before["complete"]
        assert before["other_code"]["results"] == 0
        no_file_of_the_core_names_it(environment)
    finally:
        environment.uninstall("wsl-life")
    what_is_left_when_it_is_gone(environment, cwd, left, before)
    assert killed != left


def new_run_has_begun(runs: Path, known: list[str]) -> bool:
    new = [run for run in runs.iterdir() if run.name not in known] if runs.exists() else []
    return bool(new) and len(epochs(new[0])) >= 3


def a_run_is_killed_and_resumed(
    environment: Environment, cwd: Path, undisturbed: Path, wsl: Callable[..., list[Outcome]]
) -> tuple[str, str]:
    """Kill two runs; resume one to the bits of a run that nothing disturbed, and leave the other."""
    wsl([*RUN, "--epochs", "40"], where=undisturbed)
    runs = cwd / "wsl-runs" / "runs"
    kill_when(environment, [*RUN, "--epochs", "40"], cwd, lambda: new_run_has_begun(runs, []))
    (killed,) = (run.name for run in runs.iterdir())
    kill_when(environment, [*RUN, "--epochs", "40"], cwd, lambda: new_run_has_begun(runs, [killed]))
    (left,) = (run.name for run in runs.iterdir() if run.name != killed)
    assert 3 <= len(epochs(runs / killed)) < 40
    wsl(["run", "--resume", killed, "--quiet"])
    (expected,) = (undisturbed / "wsl-runs" / "runs").iterdir()
    assert epochs(runs / killed) == epochs(expected)
    facts = json.loads((runs / killed / "run.json").read_text())
    for role in PARTS:
        assert facts["tags"][f"wsl.provenance.{role}"].startswith("wsl-life 1.0"), role
    return killed, left


def a_study_is_killed_and_resumed(
    environment: Environment, cwd: Path, undisturbed: Path, study: list[str], wsl: Callable[..., list[Outcome]]
) -> None:
    wsl(study, where=undisturbed)
    jobs = cwd / "wsl-runs" / "jobs"
    kill_when(environment, study, cwd, lambda: len(list(jobs.glob("*.json"))) >= 2)
    assert 2 <= len(results(cwd)) < 8
    wsl(["study", "resume", "life", "--jobs", "1", "--quiet"])
    assert results(cwd) == results(undisturbed)
    assert len(results(cwd)) == 8
    for history, code in results(cwd).values():
        assert "validation/candidate_mass" in history
        assert code["metric candidate-mass"].startswith("wsl-life 1.0 (source ")


def no_file_of_the_core_names_it(environment: Environment) -> None:
    (core,) = (environment.root / "lib").glob("python*/site-packages/wsl_toolkit")
    for path in core.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        named = [name for name in ("wsl-life", "wsl_life", *PARTS.values()) if f'"{name}"' in text]
        assert not named, f"{path} names {named}"


def what_is_left_when_it_is_gone(environment: Environment, cwd: Path, left: str, before: dict[str, Any]) -> None:
    report, resume, run, predict = environment.session(
        ["report", "life", "--json"],
        ["study", "resume", "life"],
        ["run", "--resume", left],
        ["predict", "model", "rows.csv"],
        cwd=cwd,
    )
    assert report.code == 0, report.stderr
    after = json.loads(report.stdout)
    assert after["cells"] == before["cells"]
    assert after["tables"] == before["tables"]
    assert after["complete"]
    assert any("→ not installed" in line for line in after["other_code"]["changes"])
    for refused, version in ((resume, "1.1"), (run, "1.0"), (predict, "1.0")):
        assert refused.code == 2
        assert f'pip install "wsl-life=={version}"' in refused.stderr
    assert "needs backbone 'straight', which wsl-life 1.0 provided" in predict.stderr


def write_table(path: Path) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "b", "candidates"])
        rows.writerows([[i % 7, i % 5, "x|y" if i % 3 else "y|z"] for i in range(60)])
