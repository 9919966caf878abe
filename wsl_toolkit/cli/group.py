"""A click group whose commands are imported on call, and which turns our errors into one line."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from click.shell_completion import CompletionItem

from wsl_toolkit.cli.common import add_common_options, is_verbose
from wsl_toolkit.cli.console import printable
from wsl_toolkit.cli.streams import guarded
from wsl_toolkit.cli.usage_hints import with_hint
from wsl_toolkit.errors import InterruptedRunError, WslError, did_you_mean, one_line
from wsl_toolkit.system.signals import ctrl_c_was_pressed, remembering_ctrl_c


class CliError(click.ClickException):
    """One clear line and a documented exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(printable(message))
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it on the class, and reads it off the instance


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep the working directory off the import path of every Python that is started meanwhile."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.pop("PYTHONSAFEPATH")
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


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
        return command if isinstance(command, click.Group) else add_common_options(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for a wrong one."""
        known = self.commands_by_name
        if args and not args[0].startswith("-") and args[0] not in known and not ctx.resilient_parsing:
            raise click.UsageError(f"there is no command {args[0]!r}.{did_you_mean(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands from the table: importing all of them would make a shell wait."""
        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.commands_by_name.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.commands_by_name.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run with standard streams that may fail, and start no process that reads code in the working directory."""
        with guarded(), _safe_path(), remembering_ctrl_c():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a user's mistake is one line, and a defect of ours says how to see more."""
        start = time.perf_counter()
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise with_hint(error) from None
        except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
            raise
        except (KeyboardInterrupt, click.Abort):
            raise CliError("stopped by Ctrl-C", 130) from None
        except Exception as error:
            if _was_interrupted(error):
                raise CliError("stopped by Ctrl-C", 130) from None
            raise _told(error, _explained(error)) from error
        finally:
            if ctx.parent is None and is_verbose():
                click.echo(_cost(time.perf_counter() - start), err=True)


def _was_interrupted(error: BaseException) -> bool:
    """Return whether Ctrl-C is behind an error that does not say so: an interrupted import may raise anything."""
    if isinstance(error, InterruptedRunError):
        return False
    behind: BaseException | None = error
    while behind is not None and not isinstance(behind, KeyboardInterrupt):
        behind = behind.__cause__ or behind.__context__
    return behind is not None or ctrl_c_was_pressed()


def _explained(error: Exception) -> CliError:
    """Return our own error as a line, what the system has against a request, or the confession of a defect."""
    if isinstance(error, WslError):
        return CliError(str(error), error.exit_code)
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENAMETOOLONG:
        return CliError(f"{str(error.filename)[:60]!r}… is too long for a file's name: choose a shorter one", 2)  # type: ignore[attr-defined]
    if number in (errno.ENOSPC, errno.EDQUOT):
        return CliError(f"the disk is full ({one_line(error)}): make room", 5)
    return CliError(f"unexpected {one_line(error)} (a defect: --verbose shows where; please report it)", 70)


def _told(error: Exception, short: CliError) -> CliError:
    """Return the short form of an error, after its traceback where that is wanted."""
    if os.environ.get("WSL_TRACEBACK") == "1":
        raise error
    if is_verbose():
        traceback.print_exception(error, file=sys.stderr)
    return short


def _cost(seconds: float) -> str:
    """Return what a command took, as the operating system counted it."""
    text = f"took {seconds:.1f} s"
    if sys.platform == "win32":
        return text
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return f"{text}, at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20:.0f} MB of memory"
