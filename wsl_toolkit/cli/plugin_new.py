"""`wsl plugin new`: a complete project to start from."""

from __future__ import annotations

from pathlib import Path

import click

from wsl_toolkit.cli.common import is_quiet
from wsl_toolkit.components import ROLES
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.scaffold import Names, scaffold


@click.command("new")
@click.argument("name")
@click.option("--kind", type=click.Choice(list(ROLES)), required=True, help="What the plugin adds.")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="The directory to make the project in.  [default: the current one]",
)
def new_plugin(name: str, kind: str, into: Path) -> None:
    """Make a new plugin's project, with a working example, tests, a README and CI.

    NAME is the component's name in kebab-case; the distribution is wsl-NAME. Where that project is there already, a
    component of another kind is added to it.

    \b
    Example:
      wsl plugin new soft-labels --kind estimator
    """
    names = Names.of(name)
    target = scaffold(names, kind, into, load_plugins().registry)
    if is_quiet():
        return
    click.echo(f"""\
{target} holds the {kind} {names.component!r}: {target}/src/{names.package}/{kind}.py is yours to change.

  cd {target}
  pip install --editable .             so that wsl finds it
  wsl plugin check                     the contracts and its own tests
  wsl run{"" if kind == "metric" else f" --{kind} {names.component}"}""")
