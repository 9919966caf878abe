"""`wsl export RUN_OR_MODEL`: a trained network as a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wsl_toolkit.cli.common import data_dir_option, force_option, json_option, tell
from wsl_toolkit.cli.complete import ended_runs
from wsl_toolkit.cli.console import print_json
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import output_paths

if TYPE_CHECKING:
    from wsl_toolkit.own_data.model_file import Model
    from wsl_toolkit.plugins.registry import Registry

EPILOG = """\b
Examples:
  wsl export bird-model --out birds.onnx
  wsl export 3f2a… --format torch-export --out classifier.pt2
A graph takes raw inputs, any number at a time, and gives calibrated logits and probabilities.
"""


@click.command("export", epilog=EPILOG)
@click.argument("source", metavar="RUN_OR_MODEL", shell_complete=ended_runs)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["onnx", "torch-export", "safetensors"]),
    help="What to write.  [default: by the ending of --out]",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The file to write: .onnx, .pt2 or .safetensors.",
)
@force_option
@data_dir_option("Where a run's data is looked for if it is no longer where the run found it.")
@json_option
def export(source: str, kind: str | None, out: Path, **options: Any) -> None:
    """Write the network of a tracked run, or of a model that `wsl fit` wrote, as a file for other programs.

    RUN_OR_MODEL is a run's id or folder, or a model's folder or file. ONNX and torch-export hold a graph from raw
    inputs to probabilities, preprocessing included; safetensors is what `wsl predict` reads. Nothing is pickled.
    """
    from wsl_toolkit.own_data import export as exporting

    chosen = exporting.choose_format(kind, out)
    output_paths.check_file(out, (Path(source),), force=options["force"])
    exporting.check_installed(chosen)
    registry = load_plugins().registry
    model = _model(source, registry, options["data_dir"])
    made = exporting.export(model, chosen, out, registry)
    if options["as_json"]:
        print_json({"out": str(out), **made.facts, "file": chosen, "largest_difference": made.largest_difference})
        return
    shown = made.facts["classes"]
    tell(f"{chosen} in {out}")
    tell(f"input: {_shape(made.facts['inputs'])}{_columns(made.facts)}")
    tell(f"outputs: {', '.join(map(_shape, made.facts['outputs']))}")
    tell(f"classes: {', '.join(shown[:10])}{f' and {len(shown) - 10} more' if len(shown) > 10 else ''}")
    apart = f"differ by at most {made.largest_difference:.1e}" if made.largest_difference else "are the same"
    tell(f"tried on made-up inputs: its probabilities and the model's {apart}")


def _model(source: str, registry: Registry, data_dir: Path) -> Model:
    """Return the model of a file or a folder that there is, or of a run."""
    from wsl_toolkit.own_data.model_file import Model
    from wsl_toolkit.own_data.run_model import model_of_run
    from wsl_toolkit.own_data.serving import find_weights
    from wsl_toolkit.runs.folder import find_folder
    from wsl_toolkit.runs.tracking.store import HOME

    path = Path(source)
    if path.exists() and not (path / "run.json").is_file():
        return Model.load(find_weights(path), registry)
    folder = find_folder(HOME, source)
    context = click.get_current_context()
    was_given = context.get_parameter_source("data_dir") is not click.core.ParameterSource.DEFAULT
    if folder.result() is None:
        tell(f"note: run {folder.run_id} is not finished: this is what its last checkpoint holds")
    return model_of_run(folder, registry, data_dir if was_given else None)


def _shape(facts: dict[str, Any]) -> str:
    return f"{facts['name']} {facts['dtype']}[{', '.join(map(str, facts['shape']))}]"


def _columns(facts: dict[str, Any]) -> str:
    columns = facts["columns"]
    if columns is None:
        return ""
    names = list(dict.fromkeys(column["name"] for column in columns))
    return f", columns {', '.join(names[:10])}{f' and {len(names) - 10} more' if len(names) > 10 else ''}"
