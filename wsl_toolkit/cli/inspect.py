"""`wsl inspect`: where a generator lies on the map of settings, proven, and what its labels look like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import force_option, json_option, seed_option
from wsl_toolkit.cli.complete import component_names
from wsl_toolkit.cli.console import print_json
from wsl_toolkit.cli.options import ComponentCommand, given_values
from wsl_toolkit.components import Component
from wsl_toolkit.parameters import parameters_of
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import output_paths

if TYPE_CHECKING:
    from wsl_toolkit.plugins.registry import Registry

OWN_VALUED = ("--classes", "--figure", "--seed")
"""Options of this command that take a value, which is therefore no generator's name."""
OWN_NAMES = frozenset(
    {
        "generator",
        "all_generators",
        "classes",
        "as_json",
        "figure",
        "force",
        "seed",
        "all",
        "json",
        "help",
        "quiet",
        "verbose",
    }
)

EPILOG = """\b
Examples:
  wsl inspect mcl-skewed --classes 10 --alpha 0.9
  wsl inspect flip-class --matrix pair --rate 0.3 --figure pair.png
  wsl inspect mcl-skewed --help                 (shows that generator's own options)
  wsl inspect --all --figure map.png
"""


def named_generator(args: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the generator that raw arguments name: the first word that is one, or else the first free word."""
    words: list[str] = []
    skip = False
    for arg in args:
        if skip:
            skip = False
        elif arg in OWN_VALUED:
            skip = True
        elif not arg.startswith("-"):
            words.append(arg)
    return next((word for word in words if word in known), words[0] if words else None)


def prefix_for(cls: type[Component]) -> str:
    """Return the prefix of a generator's options: none, unless one of them has the name of an option of ours."""
    return "generator-" if OWN_NAMES & set(parameters_of(cls)) else ""


def choose(args: Sequence[str]) -> list[tuple[str, type[Component]]]:
    """Return the named generator, whose parameters become options."""
    registry = load_plugins().registry
    name = named_generator(args, registry.names("generator"))
    if name is None or "--all" in args:
        return []
    cls = registry.get("generator", name)
    return [(prefix_for(cls), cls)]


@click.command(cls=ComponentCommand, choose=choose, epilog=EPILOG)
@click.argument("generator", required=False, shell_complete=component_names("generator"))
@click.option("--all", "all_generators", is_flag=True, help="Place every installed generator on the map.")
@click.option("--classes", type=click.IntRange(min=2), default=10, show_default=True, help="Number of classes K.")
@click.option("--figure", type=click.Path(dir_okay=False, path_type=Path), help="Draw it to FILE (.png, .svg, .pdf).")
@force_option
@json_option
@seed_option("Seed of the draws that are shown and tested.")
def inspect(
    generator: str | None,
    all_generators: bool,
    classes: int,
    figure: Path | None,
    force: bool,
    as_json: bool,
    seed: int,
    **options: Any,
) -> None:
    """Show what a GENERATOR's candidate sets are like, and prove where it lies on the map of settings.

    Up to 12 classes every set is enumerated: the setting is proven from the generator's own probabilities, with a
    witness where a claim fails. Generators that give no probabilities are placed by a statistical test of their draws.
    """
    if (generator is None) != all_generators:
        raise click.UsageError("name a GENERATOR (see `wsl list generator`), or give --all")
    if figure is not None:
        output_paths.check_figure(figure, force=force)
    registry = load_plugins().registry
    if generator is None:
        _inspect_all(registry, classes, figure, as_json, seed)
    else:
        cls = registry.get("generator", generator)
        _inspect_one(registry, generator, given_values(options, prefix_for(cls), cls), classes, figure, as_json, seed)


def _inspect_one(
    registry: Registry,
    name: str,
    values: dict[str, Any],
    classes: int,
    figure: Path | None,
    as_json: bool,
    seed: int,
) -> None:
    from wsl_toolkit.cli import inspect_page
    from wsl_toolkit.theory.generator_profile import profile_generator

    with attributed(registry, "generator", name):
        profile = profile_generator(registry.create("generator", name, values), classes, seed=seed)
    if figure is not None:
        from wsl_toolkit.theory.figures.generator import draw_profile

        draw_profile(profile, figure)
    if as_json:
        print_json(inspect_page.profile_as_json(profile))
    else:
        inspect_page.show_profile(profile, registry.entry("generator", name), figure)


def _inspect_all(registry: Registry, classes: int, figure: Path | None, as_json: bool, seed: int) -> None:
    from wsl_toolkit.cli import inspect_page
    from wsl_toolkit.theory.survey import survey

    placements = survey(registry, classes, seed=seed)
    if figure is not None:
        from wsl_toolkit.theory.figures.settings_map import draw_map

        draw_map(placements, classes, figure)
    if as_json:
        print_json([inspect_page.placement_as_json(placement) for placement in placements])
    else:
        inspect_page.show_map(placements, classes, figure)
