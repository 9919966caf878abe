"""`wsl plugin`: list, scaffold and check plugins."""

from __future__ import annotations

import click

from wsl_toolkit.cli.group import LazyGroup

COMMANDS = {
    "list": ("wsl_toolkit.cli.plugin_list:list_plugins", "List the installed plugins and what became of them."),
    "new": ("wsl_toolkit.cli.plugin_new:new_plugin", "Make a new plugin's project, complete and tested."),
    "check": ("wsl_toolkit.cli.plugin_check:check_plugin", "Run the contracts on a checkout or an installed plugin."),
}


@click.group(cls=LazyGroup, commands_by_name=COMMANDS)
def plugin() -> None:
    """List, scaffold and check plugins.

    A plugin is a Python distribution that adds generators, estimators, backbones or datasets. Installing one means
    trusting it: its code runs with your rights in every `wsl` command. Install plugins only from people you trust.

    \b
    Examples:
      wsl plugin new mine --kind estimator        a complete project, tests included
      wsl plugin check ./wsl-mine                 run the contracts on it
      wsl plugin list                             what is installed, what failed and why
    """
