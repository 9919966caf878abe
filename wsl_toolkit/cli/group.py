"""A click group whose commands are imported on call, and which turns our errors into one line."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

import click

from wsl_toolkit.errors import WslError, did_you_mean, one_line


class CliError(click.ClickException):
    """One clear line and a documented exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it on the class, and reads it off the instance


class LazyGroup(click.Group):
    """Commands by name, as 'module:attribute' with a line of help; `--help` imports none of them."""

    def __init__(self, *args: Any, commands_by_name: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_by_name = dict(commands_by_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of their table."""
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.commands_by_name:
            return None
        module, attribute = self.commands_by_name[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for a wrong one."""
        if args and not args[0].startswith("-") and args[0] not in self.commands_by_name:
            hint = did_you_mean(args[0], self.commands_by_name)
            raise click.UsageError(f"there is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.commands_by_name.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a user's mistake is one line, and a defect of ours says how to see more."""
        try:
            return super().invoke(ctx)
        except WslError as error:
            if _wants_traceback():
                raise
            raise CliError(str(error), error.exit_code) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if _wants_traceback():
                raise
            raise CliError(
                f"unexpected {one_line(error)} (a defect: set WSL_TRACEBACK=1 to see where, and please report it)",
                70,
            ) from error


def _wants_traceback() -> bool:
    return os.environ.get("WSL_TRACEBACK") == "1"
