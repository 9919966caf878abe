"""`wsl completion SHELL`: the script that makes a shell complete commands, options and components."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")

EPILOG = """\b
Put it where your shell looks:
  bash   wsl completion bash > ~/.local/share/bash-completion/completions/wsl
  zsh    wsl completion zsh > ~/.zfunc/_wsl          (with ~/.zfunc in fpath, before compinit)
  fish   wsl completion fish > ~/.config/fish/completions/wsl.fish
Or for this shell alone:
  eval "$(wsl completion bash)"
"""


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, and the names of components, studies and runs."""
    found = get_completion_class(shell)
    assert found is not None  # the argument names shells that click knows
    root = ctx.find_root()
    click.echo(found(root.command, {}, "wsl", "_WSL_COMPLETE").source())
