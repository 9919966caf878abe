"""`wsl sync`: deliver to the tracking store what could not be delivered while runs were at work."""

from __future__ import annotations

import click

from wsl_toolkit.cli.common import is_quiet, json_option, tracking_uri_option
from wsl_toolkit.cli.console import print_json
from wsl_toolkit.errors import TrackingError


@click.command()
@tracking_uri_option
@json_option
def sync(tracking_uri: str | None, as_json: bool) -> None:
    """Deliver to the tracking store what it did not take while runs were at work.

    Runs keep their record in wsl-runs/. Whatever of it the store lacks is sent, and nothing is sent twice, so this
    command can be given at any time and as often as you like. Runs whose process died are marked as KILLED.
    """
    from wsl_toolkit.runs.folder import damaged_records
    from wsl_toolkit.runs.tracking import run_folders
    from wsl_toolkit.runs.tracking.store import HOME, Tracker, choose_uri, redact

    def note(text: str) -> None:
        click.echo(f"note: {text}", err=True)

    run_folders.sweep(HOME, note)
    for text in damaged_records(HOME):
        note(text)
    waiting = run_folders.waiting(HOME)
    told: dict[str, str] = {}
    failed = 0
    if waiting:
        tracker = Tracker(choose_uri(tracking_uri), waiting[0].fact("experiment"))
        for folder, text in run_folders.sync(tracker, waiting):
            told[folder.run_id] = redact(text)
            if not as_json and (not is_quiet() or not folder.fact("delivered")):
                click.echo(f"run {folder.run_id}: {redact(text)}")
            if folder.fact("store") == tracker.label and folder.path.exists() and not folder.fact("delivered"):
                failed += 1
    if as_json:
        print_json(told)
    elif not waiting and not is_quiet():
        click.echo("nothing waits: the tracking store has everything")
    if failed:
        raise TrackingError(f"{failed} of {len(waiting)} runs could not be delivered; nothing is lost: try again later")
