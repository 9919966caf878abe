"""`wsl verify`: which estimator is unbiased under which generator, by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import force_option, is_quiet, json_option, tell
from wsl_toolkit.cli.complete import component_names
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.cli.options import ComponentCommand, given_values
from wsl_toolkit.components import Component
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import output_paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from wsl_toolkit.theory.verification import Request

EPILOG = """\b
Examples:
  wsl verify                                        all installed estimators and generators
  wsl verify --classes 5 --figure matrix.png
  wsl verify --estimator mcl --estimator-base-loss gce --json
  wsl verify --generator partition --generator-partitions "0 1|2|3"
  wsl verify --monte-carlo --figure consistency.png

\b
The exit status is 1 if a promise is broken or a component fails."""

ROLES = ("estimator", "generator")


def named(args: Sequence[str], role: str) -> list[str]:
    """Return the components that '--role NAME' or '--role=NAME' name in raw arguments, each once."""
    flag = f"--{role}"
    found = [value for arg, value in itertools.pairwise(args) if arg == flag]
    found += [arg.partition("=")[2] for arg in args if arg.startswith(f"{flag}=")]
    return list(dict.fromkeys(found))


def choose(args: Sequence[str]) -> list[tuple[str, type[Component]]]:
    """Return the components whose parameters become options: of a role of which exactly one is named."""
    registry = load_plugins().registry
    chosen = []
    for role in ROLES:
        names = named(args, role)
        if len(names) == 1 and names[0] in registry.names(role):
            chosen.append((f"{role}-", registry.get(role, names[0])))
    return chosen


@click.command("verify", cls=ComponentCommand, choose=choose, epilog=EPILOG)
@click.option("--classes", "num_classes", type=click.IntRange(2, 12), default=4, show_default=True, help="K.")
@click.option(
    "--estimator",
    "estimators",
    multiple=True,
    metavar="NAME",
    help="Only this one; may be repeated.",
    shell_complete=component_names("estimator"),
)
@click.option(
    "--generator",
    "generators",
    multiple=True,
    metavar="NAME",
    help="Only this one; may be repeated.",
    shell_complete=component_names("generator"),
)
@click.option("--figure", type=click.Path(path_type=Path, dir_okay=False), help="Write a figure (.png, .svg, .pdf).")
@force_option
@json_option
@click.option("--monte-carlo", is_flag=True, help="Learn on a known distribution instead: excess risk and bias.")
@click.pass_context
def verify(ctx: click.Context, /, **options: Any) -> None:
    """Show who is unbiased where: every estimator under every generator, every candidate set enumerated.

    The bias is exact at each of 12 random p(y|x) and logits (4 for 7 classes and more), with the true p(y|x) in the
    confidences; other points are not tried. Estimators that do not claim unbiasedness are judged by the minimiser of
    their expected loss. Give a single --estimator or --generator to set its parameters.
    """
    import torch

    torch.set_num_threads(1)  # the tensors are small: threads would only wait for each other
    estimators, generators = (_requests(options, role) for role in ROLES)
    if options["figure"] is not None:
        output_paths.check_figure(options["figure"], force=options["force"])
    if options["monte_carlo"]:
        from wsl_toolkit.cli.verify_monte_carlo import run

        run(estimators if options["estimators"] else [], generators if options["generators"] else [], options)
    elif not _matrix(estimators, generators, options):
        ctx.exit(1)


def _requests(options: dict[str, Any], role: str) -> list[Request]:
    """Return the components that are asked for with their parameters, or all, with r-true among the estimators."""
    from wsl_toolkit.theory.verification import TRUE_CONFIDENCE

    registry = load_plugins().registry
    yardstick = [TRUE_CONFIDENCE] if role == "estimator" else []
    names = list(dict.fromkeys(options[f"{role}s"])) or registry.names(role) + yardstick
    for name in names:
        if name not in yardstick:
            registry.entry(role, name)  # an unknown name is an error with suggestions
    if len(names) != 1 or names[0] in yardstick:
        return [(name, {}) for name in names]
    return [(names[0], given_values(options, f"{role}-", registry.get(role, names[0])))]


def _matrix(estimators: list[Request], generators: list[Request], options: dict[str, Any]) -> bool:
    """Enumerate and show; return whether everything is as promised."""
    from wsl_toolkit.cli import verify_table
    from wsl_toolkit.theory.verification import verify as look

    with counting("pairs", len(estimators) * len(generators)) as step:
        matrix = look(
            load_plugins().registry, estimators, generators, options["num_classes"], on_cell=lambda cell: step()
        )
    if options["as_json"]:
        print_json(matrix.to_dict())
    else:
        verify_table.show(matrix, console())
    if options["figure"] is not None:
        from wsl_toolkit.theory.figures.verify import draw_matrix

        draw_matrix(matrix, options["figure"])
        tell(f"figure: {options['figure']}")
    return not matrix.broken


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal's standard error; elsewhere keep quiet."""
    out = console(stderr=True)
    if is_quiet() or not out.is_terminal:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=out,
        transient=True,
    ) as bars:
        task = bars.add_task(what, total=total)
        yield lambda: bars.advance(task)
