"""`wsl plugin new` makes a project that passes its own tests; `wsl plugin check` says what fails and why."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner
from plugin_environments import Environment, Outcome, build_wheels

from wsl_toolkit.cli import main
from wsl_toolkit.cli.plugin_check import _report
from wsl_toolkit.components import ROLES
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import HOOKS, load
from wsl_toolkit.plugins.scaffold import TEMPLATE, Names
from wsl_toolkit.testing import EstimatorContract

PROJECTS = {kind: f"wsl-fresh-{kind}" for kind in ROLES}


@pytest.fixture(scope="module")
def projects(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One scaffolded project of each kind, built and installed with pip."""
    root = tmp_path_factory.mktemp("projects")
    made = environment.session(*(["plugin", "new", f"fresh-{kind}", "--kind", kind] for kind in PROJECTS), cwd=root)
    assert [outcome.code for outcome in made] == [0] * len(PROJECTS), made
    wheels = build_wheels(root / "dist", *(root / name for name in PROJECTS.values()))
    environment.install(*wheels)
    yield root
    environment.uninstall(*PROJECTS.values())


def test_every_kind_passes_its_own_tests_as_generated(environment: Environment, projects: Path) -> None:
    tests = [str(projects / name / "tests") for name in PROJECTS.values()]
    options = ["-q", "-rs", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", "/dev/null"]
    done = environment.run("python", "-m", "pytest", *options, *tests, cwd=projects)
    assert done.returncode == 0, done.stdout
    assert not [
        line for line in done.stdout.splitlines() if line.startswith("SKIPPED") and "not applicable" not in line
    ]


def test_generated_plugins_are_listed_with_their_component(environment: Environment, projects: Path) -> None:
    (outcome,) = environment.session(["plugins", "--json"], cwd=projects)
    records = {record["distribution"]: record for record in json.loads(outcome.stdout)}
    for kind, distribution in PROJECTS.items():
        assert records[distribution]["components"] == {kind: [f"fresh-{kind}"]}
        assert records[distribution]["warnings"] == []


@pytest.mark.parametrize("kind", PROJECTS)
def test_a_project_has_all_that_a_distribution_needs(projects: Path, kind: str) -> None:
    project = projects / PROJECTS[kind]
    for file in ("pyproject.toml", "README.md", "CHANGELOG.md", ".gitignore", ".github/workflows/test.yml"):
        assert (project / file).read_text().strip()
    assert HOOKS[kind] in (project / "src" / f"wsl_fresh_{kind}" / "__init__.py").read_text()
    assert "its code runs with your rights" in " ".join((project / "README.md").read_text().split())
    assert not any("{{" in path.name or path.suffix == ".jinja" for path in project.rglob("*"))


def test_an_installed_plugin_is_checked_by_name(environment: Environment, projects: Path) -> None:
    done = environment.run("wsl", "plugin", "check", "fresh-estimator", "--json", cwd=projects)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["distribution"] == PROJECTS["estimator"]
    checks = {check["name"].removesuffix("[fresh-estimator]"): check for check in found["checks"]}
    contract = [name for name in dir(EstimatorContract) if name.startswith("test_")]
    assert sorted(checks) == sorted(contract)
    assert len(found["checks"]) == len(checks)
    assert checks["test_the_gradient_is_that_of_the_loss"]["outcome"] == "passed"
    looking_back = checks["test_looking_back_is_pure_and_returns_state_that_was_declared"]
    assert looking_back["outcome"] == "not applicable"
    assert looking_back["why"] == "it does not define after_epoch"
    outcomes = [check["outcome"] for check in checks.values()]
    assert found["counts"] == {
        outcome: outcomes.count(outcome) for outcome in ("passed", "failed", "not applicable", "skipped")
    }
    assert found["counts"]["failed"] == 0


def test_a_checkout_is_checked_in_place_of_the_installed_version_and_its_faults_are_told(
    environment: Environment, projects: Path
) -> None:
    source = projects / PROJECTS["backbone"] / "src" / "wsl_fresh_backbone" / "backbone.py"
    sound = source.read_text()
    broken = sound.replace("nn.Linear(self.width, num_classes)", "nn.Linear(self.width, 7)")
    assert broken != sound
    source.write_text(broken)
    try:
        done = environment.run("wsl", "plugin", "check", cwd=source.parents[2])
    finally:
        source.write_text(sound)
    assert done.returncode == 1
    fault = "4 inputs of shape (3, 8, 8) gave (4, 7), not (4, 2)"
    assert "backbone fresh-backbone: held to the project's own contract class" in done.stdout
    assert "7 of the project's 10 own tests passed, 3 failed" in done.stdout
    assert f"failed  own test: inputs become one logit a class: {fault}" in done.stdout
    assert "failed  own test: the number of parameters is that of two layers" in done.stdout
    assert re.search(r"^\d+ passed, [1-9]\d* failed", done.stdout, re.M)


def test_passed_failed_and_not_applicable_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    def check(name: str, outcome: str, why: str = "") -> dict[str, str]:
        identity = f"installed.py::TestEstimator::test_{name}[mine]"
        return {"kind": "contract", "id": identity, "name": f"test_{name}[mine]", "outcome": outcome, "why": why}

    checks = [
        check("functions_are_pure", "passed"),
        check("it_learns", "failed", "12 epochs reach an accuracy of 0.33"),
        check("the_promise_is_proven_by_enumeration", "not applicable", "a heuristic promises nothing"),
    ]
    _report([], checks, {"passed": 1, "failed": 1, "not applicable": 1, "skipped": 0})
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "ok      estimator mine: functions are pure",
        "failed  estimator mine: it learns: 12 epochs reach an accuracy of 0.33",
        "n/a     estimator mine: the promise is proven by enumeration: a heuristic promises nothing",
        "1 passed, 1 failed, 1 not applicable.",
    ]


@pytest.fixture(scope="module")
def mistakes(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What happens when the commands are misused."""
    cwd = tmp_path_factory.mktemp("mistakes")
    (cwd / "no-plugin").mkdir()
    (cwd / "no-plugin" / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (cwd / "garbled").mkdir()
    (cwd / "garbled" / "pyproject.toml").write_text("[project")
    commands = {
        "taken": ["plugin", "new", "ppl", "--kind", "estimator"],
        "bad name": ["plugin", "new", "9 lives", "--kind", "estimator"],
        "first": ["plugin", "new", "twice", "--kind", "dataset"],
        "second": ["plugin", "new", "wsl_twice", "--kind", "dataset"],
        "unknown kind": ["plugin", "new", "x", "--kind", "optimiser"],
        "unknown name": ["plugin", "check", "builtinss"],
        "no project": ["plugin", "check", "."],
        "no plugin": ["plugin", "check", "no-plugin"],
        "garbled": ["plugin", "check", "garbled"],
    }
    return dict(zip(commands, environment.session(*commands.values(), cwd=cwd), strict=True))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("taken", "estimator 'ppl' is already provided by wsl-toolkit"),
        ("bad name", "a plugin's name is kebab-case and starts with a letter"),
        ("second", "wsl-twice exists already"),
        ("unknown kind", "'optimiser' is not one of 'generator', 'estimator', 'backbone', 'dataset'"),
        ("unknown name", "'builtinss' is neither a directory nor an installed plugin"),
        ("no project", "it has no pyproject.toml"),
        ("no plugin", "declares no plugin: it needs a [project] name and a table [project.entry-points.wsl_toolkit]"),
        ("garbled", "cannot be read"),
    ],
)
def test_a_mistake_is_one_clear_line(mistakes: dict[str, Outcome], mistake: str, message: str) -> None:
    assert mistakes[mistake].code == 2
    assert message in " ".join(mistakes[mistake].stderr.split())
    assert "Traceback" not in mistakes[mistake].stderr


def test_a_name_may_come_with_or_without_its_prefix(mistakes: dict[str, Outcome]) -> None:
    assert mistakes["first"].code == 0
    assert Names.of("wsl_Soft-labels") == Names.of("soft-labels")
    assert Names.of("soft-labels").class_name == "SoftLabels"
    with pytest.raises(ConfigError):
        Names.of("class")


def test_the_wheel_holds_the_template_and_no_tests(toolkit_wheel: Path) -> None:
    names = zipfile.ZipFile(toolkit_wheel).namelist()
    template = {name for name in names if name.startswith("wsl_toolkit/plugins/templates/")}
    root = Path(__file__).parents[2]
    there = {str(path.relative_to(root)) for path in TEMPLATE.rglob("*") if path.is_file()}
    assert template == there != set()
    top_level = {name.split("/")[0] for name in names}
    assert not top_level & {"tests", "plugins", "examples", "benchmarks"}


@pytest.mark.parametrize(("package", "command"), [("copier", "new"), ("pytest", "check")])
def test_without_the_extra_the_command_says_how_to_get_it(
    environment: Environment, tmp_path: Path, package: str, command: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hide:\n"
        f"    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {package!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    arguments = ["new", "some", "--kind", "dataset"] if command == "new" else ["check", "builtins"]
    done = environment.run("wsl", "plugin", *arguments, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "pip install 'wsl-toolkit[plugins]'" in done.stderr


def test_a_second_kind_is_added_to_a_project_and_both_load_and_pass_their_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_python: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("estimator", "generator"):
        made = CliRunner().invoke(main, ["plugin", "new", "twofold", "--kind", kind, "-q"])
        assert made.exit_code == 0, made.output
        assert made.output == "", "-q means quiet"
    project = tmp_path / "wsl-twofold"
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    again = CliRunner().invoke(main, ["plugin", "new", "twofold", "--kind", "generator"])
    assert again.exit_code == 2
    assert "exists already, with a generator" in again.stderr
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before

    monkeypatch.syspath_prepend(str(project / "src"))
    loaded = load([EntryPoint(name="twofold", value="wsl_twofold", group="wsl_toolkit")])
    (record,) = loaded.records
    assert record.failure is None
    assert record.components == {"generator": ("twofold",), "estimator": ("twofold",)}
    assert record.warnings == ()
    done = subprocess.run(
        [warm_python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(project / "tests")],
        env={**os.environ, "PYTHONPATH": str(project / "src")},
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert (project / "tests" / "test_generator.py").is_file()


def test_a_quiet_check_shows_what_failed_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"name": "p", "distribution": "wsl-p", "version": "1", "failure": None, "warnings": []}
    checks = [
        {"kind": "contract", "id": "x::TestEstimator::y", "name": f"test_{name}[p]", "outcome": outcome, "why": why}
        for name, outcome, why in (("it_works", "passed", ""), ("it_is_pure", "failed", "it writes into logits"))
    ]
    counts = {"passed": 1, "failed": 1, "not applicable": 0, "skipped": 0}
    _report([record], checks, counts, quiet=True)
    shown = capsys.readouterr().out
    assert "it is pure: it writes into logits" in shown
    assert "it works" not in shown
