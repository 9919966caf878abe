"""`wsl predict MODEL DATA`: class names and probabilities for raw rows."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import click

from wsl_toolkit.cli.common import data_dir_option, force_option, json_option, tell
from wsl_toolkit.cli.console import print_json, printable
from wsl_toolkit.cli.own_data import raw_option
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import output_paths

EPILOG = """\b
Examples:
  wsl predict bird-model new-birds.csv
  wsl predict bird-model new-birds.csv --id-column ring --out predictions.parquet
"""


@click.command("predict", epilog=EPILOG)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="A .csv, .parquet or .json file.  [default: CSV on stdout]"
)
@force_option
@raw_option
@click.option("--id-column", help="A column that names the examples; it is copied to the result.")
@click.option(
    "--delimiter", help="What separates the values of a text file.  [default: as in the model's, or as it looks]"
)
@click.option("--encoding", help="The text's encoding.  [default: as in the model's, or as it looks]")
@click.option("--decimal", help="The decimal sign, . or ,  [default: as in the model's, or as it looks]")
@click.option("--sheet", help="Which sheet of a workbook.  [default: the model's, or the first]")
@data_dir_option("Where DATA is looked for if it is not here.")
@json_option
def predict(model: Path, data: Path, **options: Any) -> None:
    """Predict the class and the probability of every class for the raw rows of DATA; no labels are needed in it."""
    from wsl_toolkit.data.formats.text_dialect import Given
    from wsl_toolkit.own_data import raw_rows, result_files
    from wsl_toolkit.own_data.model_file import Model
    from wsl_toolkit.own_data.serving import find_weights, predictions

    out: Path | None = options["out"]
    if out is not None:
        result_files.check_ending(out)
        output_paths.check_file(out, (model, data, options["data_dir"] / data), force=options["force"])
    loaded = Model.load(find_weights(model), load_plugins().registry)
    elsewhere = options["data_dir"] / data
    place = elsewhere if not data.exists() and elsewhere.exists() else data
    given = Given(**{name: options[name] for name in ("delimiter", "encoding", "decimal", "sheet")})
    x, ids = raw_rows.read_raw(place, loaded, options["id_column"], given)
    frame = predictions(loaded, loaded.probabilities(x))
    if ids is not None:
        frame.insert(0, "id", ids)
    if out is not None:
        result_files.write_frame(frame, out, raw=options["raw"])
        tell(f"{len(frame):,} predictions in {out}")
    if options["as_json"]:
        print_json(frame.to_dict("records"))
    elif out is None:
        text = io.StringIO()
        result_files.to_csv(frame, text, raw=options["raw"])
        click.echo(printable(text.getvalue()) if sys.stdout.isatty() else text.getvalue(), nl=False)
