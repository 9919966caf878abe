"""No command, and no process that it starts, runs code that lies in the working directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from servers import free_port

from tests.waiting import until
from wsl_toolkit.cli import COMMANDS
from wsl_toolkit.cli.plugin import plugin
from wsl_toolkit.cli.study import study

# As the `wsl` script does, whose own folder, not the working directory, is first on the path.
WSL = "from wsl_toolkit.cli import main\nif __name__ == '__main__':\n    main()\n"
SEVERAL = """
import json, sys
from wsl_toolkit.cli import main

if __name__ == "__main__":
    for arguments in json.loads(sys.argv[1]):
        try:
            main(arguments)
        except SystemExit as end:
            assert not end.code, (arguments, end.code)
"""
STUDY = """
name = "hostile"
trials = 1
methods = ["cc"]
training = { epochs = 1 }
settings = [{ dataset = "digits", generator = "mcl-skewed", backbone = "linear" }]
"""
IN_ONE_PROCESS = [
    ["--help"],
    ["list"],
    ["show", "estimator", "ppl"],
    ["completion", "bash"],
    ["plugins"],
    ["plugin", "list"],
    ["plugin", "new", "mine", "--kind", "estimator"],
    ["plugin", "check", "wsl-mine", "--no-tests"],
    ["inspect", "mcl-skewed", "--classes", "3"],
    ["verify", "--estimator", "cc", "--generator", "mcl-skewed", "--classes", "3"],
    ["audit", "people.csv"],
    ["fit", "people.csv", "--out", "model", "--estimator", "cc", "--epochs", "1", "--lr", "0.1", "--weight-decay", "0"],
    ["predict", "model", "people.csv"],
    ["clean", "people.csv", "--out", "clean.csv", "--folds", "2", "--estimator", "cc", "--epochs", "1", "--lr", "0.1"],
    ["run", "--backbone", "linear", "--epochs", "1", "--quiet"],
    ["export", "model", "--out", "model.pt2"],
    ["features", "digits", "--backbone", "mlp"],
    ["sync"],
    ["doctor"],
    ["study", "list"],
    ["study", "run", "study.toml", "--jobs", "1", "--quiet"],
    ["study", "resume", "hostile", "--executor", "inline", "--quiet"],
    ["study", "status", "hostile"],
    ["study", "report", "hostile", "--format", "csv"],
    ["report", "hostile", "--format", "markdown"],
]


@pytest.fixture
def hostile(first_home: Path, tmp_path: Path) -> Path:
    """A working directory with a file for every module there is, which leaves a mark and fails if it is imported."""
    place = tmp_path / "cwd"
    shutil.copytree(first_home, place / "wsl-runs")
    names = {name for name in {*sys.stdlib_module_names, *metadata.packages_distributions()} if name.isidentifier()}
    assert {
        "mlflow",
        "numpy",
        "multiprocessing",
        "signal",
        "pickle",
        "socket",
        "threading",
        "torch",
        "uvicorn",
    } <= names
    for name in {*names, "conftest", "sitecustomize", "usercustomize"}:
        mark = tmp_path / "marks" / name
        (place / f"{name}.py").write_text(f"import os\nos.makedirs({str(mark)!r})\nraise ImportError('hostile')\n")
    (place / "study.toml").write_text(STUDY)
    rows = [f"{i % 7 / 7},{i % 5 / 5},{('x|y', 'y|z', 'x|z', 'x')[i % 4]}" for i in range(40)]
    (place / "people.csv").write_text("\n".join(["a,b,candidates", *rows, ""]))
    return place


def marks(place: Path) -> list[str]:
    return sorted(path.name for path in (place.parent / "marks").glob("*"))


def start(place: Path, script: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
    folder = place.parent / "bin"
    folder.mkdir()
    (folder / "wsl.py").write_text(script)
    output = place.parent / "said"
    with output.open("wb") as said:
        command = [sys.executable, str(folder / "wsl.py"), *arguments]
        return subprocess.Popen(command, cwd=place, stdout=said, stderr=subprocess.STDOUT), output


def test_every_command_is_tried() -> None:
    tried = {arguments[0] for arguments in IN_ONE_PROCESS} | {"ui"}
    assert set(COMMANDS) <= tried
    for group in (plugin, study):
        assert set(group.list_commands(None)) <= {each[1] for each in IN_ONE_PROCESS if each[0] == group.name}


@pytest.mark.system
def test_no_command_runs_code_from_the_working_directory(hostile: Path) -> None:
    import json

    started, output = start(hostile, SEVERAL, json.dumps(IN_ONE_PROCESS))
    try:
        assert started.wait(500) == 0, output.read_text()[-3000:]
    finally:
        started.kill()
        started.wait()
    assert marks(hostile) == []


@pytest.mark.system
def test_the_interface_runs_no_code_from_the_working_directory(hostile: Path) -> None:
    started, output = start(hostile, WSL, "ui", "--no-open", "--port", str(free_port()))
    try:
        until(lambda: "Stop with Ctrl-C" in output.read_text() or started.poll() is not None, seconds=240)
        assert started.poll() is None, output.read_text()
    finally:
        started.terminate()
        started.wait(60)
    assert marks(hostile) == []


def test_python_itself_would_run_such_code(hostile: Path) -> None:
    """So that the tests above could fail."""
    subprocess.run([sys.executable, "-c", "import numpy"], cwd=hostile, capture_output=True, check=False)
    assert "numpy" in marks(hostile)
