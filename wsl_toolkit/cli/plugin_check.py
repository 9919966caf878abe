"""`wsl plugin check`: hold a plugin to the contracts, and say what fails and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from wsl_toolkit.cli.common import is_quiet, json_option
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.errors import PluginError, UnknownComponentError, did_you_mean
from wsl_toolkit.plugins.loading import PluginRecord, load_plugins, names_of, normal_name
from wsl_toolkit.plugins.source_tree import SourceTree

CONTRACTS = "wsl_toolkit.testing.installed"

OUTCOMES = {
    "passed": "[green]ok[/]     ",
    "failed": "[bold red]failed[/] ",
    "not applicable": "n/a    ",
    "skipped": "skipped",
}
"""What may become of a check, and how a line about it begins."""


@click.command("check")
@click.argument("target", default=".", metavar="[PATH|NAME]")
@json_option
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="WSL_DATA_DIR",
    help="Where datasets that read files find them.",
)
@click.option("--no-tests", is_flag=True, help="Leave a checkout's own tests out: the contracts alone.")
@click.option("--verbose", "-v", is_flag=True, help="Show pytest's own output too.")
@click.pass_context
def check_plugin(
    ctx: click.Context, target: str, as_json: bool, data_dir: Path | None, no_tests: bool, verbose: bool
) -> None:
    """Run the contracts on a plugin: a checkout (PATH, default the current directory) or an installed one (NAME).

    Every component is tried with its default parameters, or as its class declares in `contract`. A checkout's own tests
    run too; where they hold a component to a contract class of their own, that one counts.

    \b
    Examples:
      wsl plugin check                the checkout you are in
      wsl plugin check wsl-mine       an installed distribution
      wsl plugin check builtins       one of its plugins, by entry point
    """
    try:
        import pytest  # noqa: F401
    except ImportError:
        raise PluginError("checking a plugin needs pytest: pip install 'wsl-toolkit[plugins]'") from None
    with tempfile.TemporaryDirectory(prefix="wsl-check-") as scratch:
        if Path(target).is_dir():
            tree = SourceTree.read(Path(target))
            paths = tree.install_metadata(Path(scratch) / "metadata")
            distribution, plugin, tests = tree.distribution, None, None if no_tests else tree.tests
        else:
            (distribution, plugin), paths, tests = _installed(target), [], None
        child = Child(Path(scratch), paths, data_dir, verbose)
        records = [record for record in child.records(distribution) if plugin in (None, record["name"])]
        if not records:
            raise PluginError(f"none of the plugins of {distribution} was found when plugins were loaded")
        checks = child.checks(distribution, plugin, tests) if any(not record["failure"] for record in records) else []
    broken = sum(bool(record["failure"]) for record in records)
    counts = {outcome: sum(check["outcome"] == outcome for check in checks) for outcome in OUTCOMES}
    if as_json:
        print_json({"distribution": distribution, "plugins": records, "counts": counts, "checks": checks})
    elif not is_quiet() or broken or counts["failed"] or not checks:
        _report(records, checks, counts, quiet=is_quiet())
    ctx.exit(1 if broken or counts["failed"] or not checks else 0)


class Child:
    """A process of its own for a plugin's code: what it prints, breaks or exits stays there."""

    def __init__(self, scratch: Path, paths: list[Path], data_dir: Path | None, verbose: bool) -> None:
        self.scratch = scratch
        self.data_dir = data_dir
        self.verbose = verbose
        # Absolute, for the process works in a folder of its own: pytest would read a conftest.py beside the user.
        own = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        path = os.pathsep.join(os.path.abspath(entry) for entry in [*map(str, paths), *own])
        # Contracts work on tiny tensors, for which one thread is the fastest.
        settings = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        self.environment = {**os.environ, **settings}

    def records(self, distribution: str) -> list[dict[str, Any]]:
        """Return what became of the distribution's plugins when they were loaded."""
        command = [sys.executable, "-P", "-m", "wsl_toolkit.cli", "plugins", "--json"]
        done = subprocess.run(
            command, env=self.environment, cwd=self.scratch, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PluginError(f"{distribution} cannot be loaded: {(done.stderr or done.stdout).strip()[-500:]}")
        wanted = normal_name(distribution)
        records = [record for record in json.loads(done.stdout) if normal_name(record["distribution"]) == wanted]
        if off := [record["name"] for record in records if record["status"] == "disabled"]:
            raise PluginError(f"plugin {off[0]!r} of {distribution} is switched off by WSL_DISABLE_PLUGINS")
        return records

    def checks(self, distribution: str, plugin: str | None, tests: Path | None) -> list[dict[str, Any]]:
        """Run the project's own tests, and the contracts of what those leave; return each check's outcome."""
        own = self._pytest([str(tests)], "own test") if tests is not None else []
        options = [f"--wsl-covered={name}" for name in sorted({check["component"] for check in own} - {""})]
        options += [f"--wsl-plugin={plugin}"] if plugin else []
        return self._pytest(["--pyargs", CONTRACTS, f"--wsl-distribution={distribution}", *options], "contract") + own

    def _pytest(self, arguments: list[str], kind: str) -> list[dict[str, Any]]:
        report = self.scratch / f"{kind.replace(' ', '-')}.jsonl"
        options = ["-q", "-p", "no:cacheprovider", f"--rootdir={self.scratch}", f"--wsl-report={report}"]
        if kind == "contract":
            options += [f"--wsl-data-dir={self.data_dir.resolve()}"] if self.data_dir else []
            # Any other import mode puts site-packages first on the path, and the installed version before a checkout.
            options += ["--import-mode=importlib", "-c", os.devnull, "-o", "python_files=installed.py", "-W", "ignore"]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pytest", *options, *arguments],
            env=self.environment,
            cwd=self.scratch if kind == "contract" else Path(arguments[0]).parent,
            capture_output=not self.verbose,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            output = "" if self.verbose else f": {(done.stdout + done.stderr).strip()[-1500:]}"
            raise PluginError(f"pytest could not run the {kind}s (exit code {done.returncode}){output}")
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        return [{"kind": kind, **json.loads(line)} for line in lines]


def _installed(name: str) -> tuple[str, str | None]:
    """Return the distribution that a name means, and the plugin if it means one of several."""
    records = load_plugins().records
    found = next((record for record in records if normal_name(name) in names_of(record)), None)
    if found is None:
        known = list(dict.fromkeys(record.distribution for record in records))
        raise UnknownComponentError(
            f"{name!r} is neither a directory nor an installed plugin.{did_you_mean(name, known)}"
            f" Installed: {', '.join(known)}."
        )
    whole = normal_name(name) == normal_name(found.distribution)
    return found.distribution, None if whole else found.name


def _report(
    records: list[dict[str, Any]], checks: list[dict[str, Any]], counts: dict[str, int], *, quiet: bool = False
) -> None:
    out = console()
    for record in records:
        title = PluginRecord(
            name=record["name"], distribution=record["distribution"], version=record["version"], target=""
        )
        out.print(f"[bold]{escape(str(title))}[/]")
        if record["failure"]:
            out.print(f"  [bold red]failed[/]  cannot be loaded: {escape(record['failure'])}")
        for warning in record["warnings"]:
            out.print(f"  [bold yellow]warning[/] {escape(warning)}")
    own = [check for check in checks if check["kind"] == "own test"]
    if own:
        found = {outcome: sum(check["outcome"] == outcome for check in own) for outcome in OUTCOMES}
        others = "".join(f", {n} {outcome}" for outcome, n in found.items() if n and outcome != "passed")
        out.print(f"  {found['passed']} of the project's {len(own)} own tests passed{others}")
        for name in sorted({check["component"] for check in own} - {""}):
            out.print(f"  {escape(name)}: held to the project's own contract class")
    for check in checks:
        if (quiet or check["kind"] == "own test") and check["outcome"] != "failed":
            continue
        why = f": {escape(check['why'])}" if check["why"] else ""
        out.print(f"  {OUTCOMES[check['outcome']]} {escape(_claim(check))}{why}")
    broken = sum(bool(record["failure"]) for record in records)
    if broken:
        out.print(f"[bold red]{broken} {'plugin' if broken == 1 else 'plugins'} cannot be loaded.[/]")
    if checks:
        told = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n or outcome in ("passed", "failed"))
        out.print(f"[bold {'red' if counts['failed'] else 'green'}]{told}.[/]")
    elif not broken:
        out.print("[bold red]Nothing was checked:[/] the plugin registers no component.")


def _claim(check: dict[str, Any]) -> str:
    """Return a check as a sentence: 'estimator mine: the loss is one number an example'."""
    name, _, parameters = check["name"].partition("[")
    sentence = name.removeprefix("test_").replace("_", " ")
    if check["kind"] == "contract":
        role = check["id"].split("::")[1].removeprefix("Test").lower()
        return f"{role} {parameters.rstrip(']')}: {sentence}"
    return f"own test: {sentence}" + (f" [{parameters}" if parameters else "")
