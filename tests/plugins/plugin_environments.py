"""Virtual environments for tests of installed plugins: the toolkit's own wheel and others', big packages shared.

The environment sees torch, mlflow and the rest through a `.pth` file; what is tested is installed by pip.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]

SESSION = """
import contextlib, io, json, sys
from wsl_toolkit.cli import main

results = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments, prog_name="wsl")
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
    results.append({"code": code, "stdout": out.getvalue(), "stderr": err.getvalue()})
json.dump(results, sys.stdout)
"""
"""Runs many `wsl` commands in one process, because importing torch and mlflow takes longer than most of them."""


@attrs.frozen
class Outcome:
    """What a command of a session came to."""

    code: int
    stdout: str
    stderr: str


@attrs.frozen
class Environment:
    """A virtual environment and how to use it."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    def install(self, *wheels: Path) -> None:
        # Python compiles what is used when it is used; most of what is installed is not.
        self.pip("install", "--quiet", "--no-deps", "--no-index", "--no-compile", *map(str, wheels))

    def uninstall(self, *distributions: str) -> None:
        self.pip("uninstall", "--quiet", "--yes", *distributions)

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def session(self, *commands: list[str], cwd: Path) -> list[Outcome]:
        """Run several `wsl` commands one after another."""
        done = self.run("python", "-c", SESSION, cwd=cwd, stdin=json.dumps(commands))
        assert done.returncode == 0, done.stdout + done.stderr
        return [Outcome(**result) for result in json.loads(done.stdout)]

    def run(
        self, *command: str, cwd: Path, stdin: str = "", timeout: float = 500, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment (`wsl`, `python`), away from the checkout and its settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WSL_", "PYTHON", "MLFLOW_", "PYTEST_"))}
        return subprocess.run(
            [str(self.root / "bin" / command[0]), *command[1:]],
            cwd=cwd,
            env={
                **kept,
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "200",
                "PATH": f"{self.root / 'bin'}:{kept['PATH']}",
                **env,
            },
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def make_environment(root: Path, *wheels: Path) -> Environment:
    """Make an environment that shares this one's packages, and install wheels into it."""
    venv.create(root, with_pip=False, symlinks=True)
    environment = Environment(root)
    site = next((root / "lib").glob("python*")) / "site-packages"
    # Only the directory is shared: an editable install's own .pth in it is not followed.
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (site / "shared.pth").write_text("\n".join(shared) + "\n")
    environment.install(*wheels)
    return environment


def build_wheels(into: Path, *projects: Path) -> list[Path]:
    """Build projects' wheels, as their authors would."""
    into.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(into), *map(str, projects)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(into.glob("*.whl"))


def tiny_wheel(into: Path, name: str, source: str | None, *, entry_point: str | None = None) -> Path:
    """Write the wheel of a distribution with one module (or none), whose entry point is the module."""
    module = name.replace("-", "_")
    info = f"{module}-1.2.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[wsl_toolkit]\n{module.removeprefix('wsl_')} = {entry_point or module}\n",
    }
    if source is not None:
        files[f"{module}.py"] = textwrap.dedent(source)
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    into.mkdir(parents=True, exist_ok=True)
    wheel = into / f"{module}-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return wheel
