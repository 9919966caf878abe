"""Tab completes commands, options, components, studies and runs, and does not keep anybody waiting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from wsl_toolkit.cli import main


def offered(*words: str) -> list[str]:
    """Return what is offered for the last of the words."""
    completer = BashComplete(main, {}, "wsl", "_WSL_COMPLETE")
    return [item.value for item in completer.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("do",), ["doctor"]),
        (("run", "--estimator", "pp"), ["ppl"]),
        (("run", "--generator", "mcl"), ["mcl", "mcl-skewed"]),
        (("run", "--generator", "flip-class", "--generator-m"), ["--generator-matrix"]),
        (("run", "--estimator", "ppl", "--estimator-base-loss", "g"), ["gce"]),
        (("run", "--device", "x", "--precision", "b"), ["bfloat16"]),
        (("verify", "--estimator", "mcl-m"), ["mcl-mae"]),
        (("inspect", "mcl-s"), ["mcl-skewed"]),
        (("inspect", "mcl-skewed", "--al"), ["--all", "--alpha"]),
        (("show", "backbone", "res"), ["resnet32"]),
        (("show", "gen"), ["generator"]),
        (("fit", "x.csv", "--estimator", "sup"), ["supervised"]),
        (("study", "run", "paper-table"), ["paper-table-3", "paper-table-4", "paper-table"]),
        (("study", "st"), ["status"]),
        (("run", "--estimator", "no-such-thing", "--ver"), ["--verbose"]),
        (("no-such-command", "x"), []),
    ],
)
def test_the_shell_is_offered(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_studies_and_runs_of_the_directory_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("studies/mine/study.toml", "runs/abc/run.json", "runs/done/run.json", "runs/done/result.json"):
        file = tmp_path / "wsl-runs" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert offered("report", "") == offered("study", "resume", "") == ["mine"]
    assert offered("run", "--resume", "") == ["abc"]
    assert offered("export", "d") == ["done", "d"], "and files"


def test_completing_a_component_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom click.shell_completion import BashComplete\nfrom wsl_toolkit.cli import main\n"
        "found = BashComplete(main, {}, 'wsl', '_WSL_COMPLETE').get_completions(['run', '--estimator'], 'pp')\n"
        "assert [item.value for item in found] == ['ppl']\n"
        "heavy = [m for m in ('torch', 'mlflow', 'numpy', 'sklearn', 'pandas', 'matplotlib') if m in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_bash_completes_with_the_script_that_we_print(tmp_path: Path) -> None:
    """In a real bash: the script is sourced, and its function is called as readline would."""
    bash = shutil.which("bash")
    assert bash, "bash is needed"
    (tmp_path / "wsl").write_text(f'#!/bin/sh\nexec {sys.executable} -m wsl_toolkit.cli "$@"\n')
    (tmp_path / "wsl").chmod(0o755)
    script = (
        'eval "$(wsl completion bash)"\n'
        "COMP_WORDS=(wsl run --estimator pp)\nCOMP_CWORD=3\n_wsl_completion wsl\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["ppl"], done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_command_and_its_variable(shell: str) -> None:
    from click.testing import CliRunner

    script = CliRunner().invoke(main, ["completion", shell]).output
    assert "_WSL_COMPLETE" in script
    assert "wsl" in script
