"""`wsl doctor`: what is installed, what works, and how to fix what does not."""

from __future__ import annotations

from pathlib import Path

import click

from wsl_toolkit.cli.common import data_dir_option, is_quiet, json_option, tracking_uri_option
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.plugins.loading import load_plugins

STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


@click.command("doctor")
@data_dir_option()
@tracking_uri_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, data_dir: Path, tracking_uri: str | None, as_json: bool) -> None:
    """Look at the installation: packages, plugins, torch, tracking store, data, disk; one line for each finding.

    A note is worth knowing; a problem stops something from working, says how to fix it, and makes the exit code 1.
    With --quiet only notes and problems are shown.
    """
    import attrs

    from wsl_toolkit.runs.doctor import OK, PROBLEM, examine

    found = []
    for finding in examine(load_plugins(), data_dir, tracking_uri):
        found.append(finding)
        if as_json or (is_quiet() and finding.status == OK):
            continue
        _show(finding.status, finding.topic, finding.text, finding.fix)
    problems = sum(finding.status == PROBLEM for finding in found)
    if as_json:
        print_json({"problems": problems, "findings": [attrs.asdict(finding) for finding in found]})
    elif not is_quiet():
        console().print(f"{problems} problem{'s' if problems != 1 else ''}" if problems else "No problem found.")
    ctx.exit(1 if problems else 0)


def _show(status: str, topic: str, text: str, fix: str) -> None:
    from rich.markup import escape

    remedy = f" [bold]→[/] {escape(fix)}" if fix else ""
    style = STYLES[status]
    console().print(f"[{style}]{status:8}[/]{topic:12}{escape(text)}{remedy}")
