"""All commands behave alike: the same flag means the same everywhere, quiet is quiet, colours can be switched off."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from wsl_toolkit.cli import main
from wsl_toolkit.cli.common import add_common_options
from wsl_toolkit.cli.options import component_options
from wsl_toolkit.components import ROLES
from wsl_toolkit.plugins.loading import load_plugins

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|4[0-7]|9[0-7]|38|48)[;m]")


def commands(group: click.Group = main, parent: click.Context | None = None) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, with its whole name."""
    context = click.Context(group, info_name="wsl" if parent is None else group.name, parent=parent)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, context)
        else:
            yield f"{context.command_path} {name}", command


ALL = dict(commands())


def option(command: click.Command, flag: str) -> click.Option | None:
    return next((p for p in command.params if isinstance(p, click.Option) and flag in p.opts), None)


@pytest.mark.parametrize("name", ALL)
def test_every_command_can_be_quiet_verbose_and_teach_itself(name: str) -> None:
    command = ALL[name]
    for flag, short in (("--quiet", "-q"), ("--verbose", "-v")):
        found = option(command, flag)
        assert found is not None, f"{name} has no {flag}"
        assert short in found.opts
    assert (command.help or "").strip(), f"{name} has no help"
    assert all(p.help for p in command.params if isinstance(p, click.Option)), f"{name} has an option without help"


@pytest.mark.parametrize("role", ROLES)
def test_roles_may_be_said_in_the_plural(role: str) -> None:
    one, many = (CliRunner().invoke(main, ["list", word]) for word in (role, f"{role}s"))
    assert one.exit_code == many.exit_code == 0
    assert one.output == many.output


def test_a_role_that_is_none_is_refused_as_it_was_written() -> None:
    refused = CliRunner().invoke(main, ["list", "optimisers"])
    assert refused.exit_code == 2
    assert "'optimisers' is not one of 'generator', 'estimator'" in refused.output


def test_no_option_tells_its_default_twice_or_tells_of_one_that_is_none() -> None:
    registry = load_plugins().registry
    for role in ROLES:
        for name in registry.names(role):
            for found in component_options(registry.get(role, name), f"{role}-"):
                assert (found.help or "").count("[default: ") <= 1, f"{name}: {found.help}"
                assert not re.search(r"default: (None)?\]", found.help or ""), f"{name}: {found.help}"


@pytest.mark.parametrize(("arguments", "heard"), [([], 1), (["-q"], 0)])
def test_a_librarys_warning_is_not_heard_by_who_asked_for_quiet(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], heard: int
) -> None:
    monkeypatch.setattr(sys, "warnoptions", [])  # as in a shell; pytest itself may have been started with -W

    @click.command()
    def advised() -> None:
        warnings.warn("call optimizer.step() before lr_scheduler.step()", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True, action="always") as caught:
        CliRunner().invoke(add_common_options(advised), arguments, catch_exceptions=False)
        warnings.warn("and when it has ended, all is as before", UserWarning, stacklevel=1)
    assert len(caught) == heard + 1


@pytest.mark.parametrize(("arguments", "heard"), [([], True), (["-q"], False)])
def test_nor_that_of_a_process_that_the_command_starts(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], heard: bool
) -> None:
    monkeypatch.setattr(sys, "warnoptions", [])
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    worker = [sys.executable, "-c", "import warnings; warnings.warn('step the optimiser first')"]

    @click.command()
    def delegating() -> None:
        said = subprocess.run(worker, capture_output=True, text=True, check=True).stderr
        assert ("step the optimiser first" in said) == heard

    CliRunner().invoke(add_common_options(delegating), arguments, catch_exceptions=False)
    assert "PYTHONWARNINGS" not in os.environ


@pytest.mark.parametrize("flag", ["--json", "--tracking-uri", "--device", "--quiet"])
def test_a_flag_says_the_same_wherever_it_is(flag: str) -> None:
    said = {name: found.help for name, command in ALL.items() if (found := option(command, flag))}
    # Training's own options are made from its fields: same words, other code.
    texts = {re.sub(r"\s+\[.*", "", text or "") for name, text in said.items()}
    assert len(texts) == 1, said


@pytest.mark.parametrize(("flag", "default", "variable"), [("--data-dir", Path("data"), "WSL_DATA_DIR")])
def test_a_flag_has_the_same_default_wherever_it_is(flag: str, default: object, variable: str) -> None:
    for name, command in ALL.items():
        found = option(command, flag)
        if found is not None and name != "wsl plugin check":  # which must not make up a directory
            assert (found.default, found.envvar) == (default, variable), name


def test_every_command_that_tells_something_can_tell_it_as_json() -> None:
    """The others print a script, start a server or hand over files."""
    without = {name for name, command in ALL.items() if option(command, "--json") is None}
    assert without == {"wsl ui", "wsl plugin new", "wsl completion"}


def test_seeds_are_never_negative() -> None:
    for name, command in ALL.items():
        if (found := option(command, "--seed")) is not None:
            result = CliRunner().invoke(main, [*name.split()[1:], "--seed", "-1", "x"])
            assert result.exit_code == 2, name
            assert found.help


def test_quiet_leaves_the_figures_notice_out_and_the_result_in(tmp_path: Path) -> None:
    arguments = ["verify", "--classes", "3", "--estimator", "cc", "--generator", "cl", "--json"]
    arguments += ["--figure", str(tmp_path / "f.png"), "--force"]
    loud, still = (CliRunner().invoke(main, [*arguments, *more]) for more in ([], ["-q"]))
    assert "figure:" in loud.stderr
    assert still.stderr == ""
    assert json.loads(still.stdout) == json.loads(loud.stdout)


def test_verbose_shows_the_traceback_and_what_it_took_and_keeps_the_exit_code() -> None:
    short, long = (CliRunner().invoke(main, ["show", "estimator", "pqr", *more]) for more in ([], ["--verbose"]))
    assert short.exit_code == long.exit_code == 2
    assert "Traceback" not in short.output
    assert "Traceback" in long.stderr
    assert re.search(r"took \d+\.\d s", long.stderr)


def in_terminal(python: Path, *arguments: str, **env: str) -> str:
    """Run a command as a person does: on a terminal."""
    ours, theirs = pty.openpty()
    settings = {"TERM": "xterm-256color", "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env}
    process = subprocess.Popen(
        [python, "-m", "wsl_toolkit.cli", *arguments], stdout=theirs, stderr=theirs, stdin=theirs, env=settings
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    process.wait(timeout=60)
    os.close(ours)
    return said.decode()


@pytest.mark.parametrize("arguments", [("plugins",), ("inspect", "cl", "--classes", "3")])
def test_no_color_means_no_colour(arguments: tuple[str, ...], warm_python: Path) -> None:
    plain = in_terminal(warm_python, *arguments, NO_COLOR="1")
    assert plain.strip()
    assert not COLOUR.search(plain)


def test_a_terminal_gets_colours_otherwise(warm_python: Path) -> None:
    assert COLOUR.search(in_terminal(warm_python, "inspect", "cl", "--classes", "3"))
