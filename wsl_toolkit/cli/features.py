"""`wsl features DATASET`: run a network once over a dataset, and keep what its last layer sees."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import data_dir_option, device_option, force_option, is_quiet, json_option, tell
from wsl_toolkit.cli.complete import component_names
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.cli.options import ComponentCommand, given_values, peek
from wsl_toolkit.cli.own_data import positionals
from wsl_toolkit.components import Dataset
from wsl_toolkit.data.formats import sources
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import output_paths

if TYPE_CHECKING:
    from wsl_toolkit.runs.feature_cache import FeatureCache

EPILOG = """\b
Examples:
  wsl features digits --backbone mlp
  wsl features photos/ --backbone resnet32 --backbone-frozen-weights net.safetensors
  wsl features digits --backbone mlp --out digits-features.npz
  wsl features --list
"""


def dataset_of(named: str) -> type[Dataset]:
    """Return the dataset of that name, or the one that reads the file or folder of that name."""
    registry = load_plugins().registry
    if not registry.has("dataset", named) and (Path(named).exists() or Path(named).suffix):
        return sources.reader_of(Path(named), registry)
    found: type[Dataset] = registry.get("dataset", named)
    return found


def choose(args: Sequence[str]) -> list[tuple[str, type]]:
    """Return the dataset, whose options have no prefix, and the backbone."""
    chosen: list[tuple[str, type]] = []
    if (named := positionals([arg for arg in args if arg != "--list"])) and not {"-h", "--help"} & set(named):
        chosen.append(("", dataset_of(named[0])))
    if backbone := peek(args, "--backbone"):
        chosen.append(("backbone-", load_plugins().registry.get("backbone", backbone)))
    return chosen


@click.command("features", cls=ComponentCommand, choose=choose, epilog=EPILOG)
@click.argument("dataset", required=False, shell_complete=component_names("dataset"))
@click.option(
    "--backbone",
    metavar="NAME",
    help="The network (see `wsl list backbone`); its own options appear below.",
    shell_complete=component_names("backbone"),
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write them as a dataset too: a .npz file."
)
@force_option
@click.option("--list", "listed", is_flag=True, help="List the features that are kept here.")
@device_option
@data_dir_option()
@json_option
def features(dataset: str | None, **options: Any) -> None:
    """Compute the features of DATASET (a name, a file or a folder), which `--backbone-frozen` trains on.

    They are kept in wsl-runs/features, by content: what is there is not computed again.
    """
    from wsl_toolkit.runs.features import cache_in
    from wsl_toolkit.runs.listing import HOME

    cache = cache_in(HOME)
    if options["listed"]:
        if dataset is not None or options["backbone"] is not None:
            raise click.UsageError("--list lists what is kept: leave DATASET and --backbone out")
        _list(cache, as_json=options["as_json"])
        return
    if dataset is None:
        raise click.UsageError("name a DATASET, or list what is kept with --list")
    if options["backbone"] is None:
        raise click.UsageError("name the network, with --backbone")
    _compute(dataset, cache, options)


def _compute(named: str, cache: FeatureCache, options: dict[str, Any]) -> None:
    import attrs

    from wsl_toolkit.cli.progress import progress
    from wsl_toolkit.data.loading import load_data
    from wsl_toolkit.parameters import construct
    from wsl_toolkit.plugins.attribution import attributed
    from wsl_toolkit.runs.features import FeatureMaker

    registry = load_plugins().registry
    if options["out"]:
        output_paths.check_file(options["out"], [Path(named)], force=options["force"])
        sources.reader_of(options["out"], registry)
    cls = dataset_of(named)
    file = {} if registry.has("dataset", named) else {sources.PATH: named}
    chosen = registry.get("backbone", options["backbone"])
    backbone = construct(chosen, {**given_values(options, "backbone-", chosen), "frozen": True})
    with attributed(registry, "dataset", cls.name):
        data = load_data(construct(cls, {**given_values(options, "", cls), **file}), options["data_dir"])
    if options["out"] and data.imbalance != 1:
        raise ConfigError("--imbalance thins a run's training part: leave it out here, and give it to the run")
    began = time.monotonic()
    computed: list[int] = []
    with progress(quiet=is_quiet()) as listener:

        def moved(done: int, of: int) -> None:
            computed.append(done)
            listener.features(done, of)

        maker = FeatureMaker(
            registry=registry, data_dir=options["data_dir"], cache=cache, device=options["device"], tell=moved
        )
        made = maker.embedded(data, backbone)
    assert made.embedding is not None
    key = maker.key(made.embedding, backbone)
    if options["out"]:
        sources.write(attrs.evolve(made, embedding=None), options["out"], {}, registry)
    seconds = time.monotonic() - began
    examples = len(made.x) + (0 if made.test_x is None else len(made.test_x))
    facts = {"key": key, "path": str(cache.path(key)), "examples": examples, "width": made.x.shape[1]}
    facts |= {"computed": bool(computed), "seconds": round(seconds, 3), "out": options["out"] and str(options["out"])}
    if options["as_json"]:
        print_json(facts)
        return
    what = f"computed in {seconds:.1f} s" if computed else "there already"
    tell(f"{examples:,} examples × {made.x.shape[1]:,} features: {what}, in {facts['path']}")
    if options["out"]:
        tell(f"The dataset is {options['out']}")


def _list(cache: FeatureCache, *, as_json: bool) -> None:
    kept = cache.kept()
    if as_json:
        print_json([each.to_dict() for each in kept])
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"{cache.folder} ({sum(each.bytes for each in kept) / 2**20:.1f} MB)", title_justify="left")
    for heading in ("key", "data", "network", "examples", "width", "MB", "made"):
        table.add_column(heading, justify="right" if heading in ("examples", "width", "MB") else "left")
    for each in kept:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.made_at))
        network, _, weights = each.network.rpartition(", weights ")
        numbers = (f"{each.examples:,}", f"{each.width:,}", f"{each.bytes / 2**20:.1f}")
        table.add_row(each.key[:12], escape(each.data), escape(f"{network}, {weights[:8]}"), *numbers, made)
    console().print(table if kept else "No features are kept here.")
