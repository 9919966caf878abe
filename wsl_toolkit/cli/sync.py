"""`wsl sync`: deliver to the tracking store what could not be delivered while runs were at work."""

from __future__ import annotations

import click


@click.command()
@click.option("--tracking-uri", help="MLflow store.  [default: MLFLOW_TRACKING_URI, else wsl-runs/mlflow.db]")
@click.option("--quiet", is_flag=True, help="Say nothing unless something is left.")
def sync(tracking_uri: str | None, quiet: bool) -> None:
    """Deliver to the tracking store what it did not take while runs were at work.

    Runs keep their record in wsl-runs/. Whatever of it the store lacks is sent, and nothing is sent twice, so this
    command can be given at any time and as often as you like. Runs whose process died are marked as KILLED.
    """
    from wsl_toolkit import delivery
    from wsl_toolkit.tracking import HOME, Tracker, choose_uri, redact

    def note(text: str) -> None:
        click.echo(f"note: {text}", err=True)

    delivery.sweep(HOME, note)
    waiting = delivery.waiting(HOME)
    if not waiting:
        if not quiet:
            click.echo("nothing waits: the tracking store has everything")
        return
    uri = choose_uri(tracking_uri)
    tracker = Tracker(uri, waiting[0].fact("experiment"))
    for folder, text in delivery.sync(tracker, waiting):
        if not quiet or not folder.fact("delivered"):
            click.echo(f"run {folder.run_id}: {redact(text)}")
