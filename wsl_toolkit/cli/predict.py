"""`wsl predict MODEL DATA`: class names and probabilities for raw rows."""

from __future__ import annotations

from pathlib import Path

import click

from wsl_toolkit.cli.common import data_dir_option, json_option, tell
from wsl_toolkit.cli.console import print_json
from wsl_toolkit.cli.own_data import force_option
from wsl_toolkit.plugins.loading import load_plugins

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
@click.option("--id-column", help="A column that names the examples; it is copied to the result.")
@data_dir_option("Where DATA is looked for if it is not here.")
@json_option
def predict(
    model: Path, data: Path, out: Path | None, force: bool, id_column: str | None, data_dir: Path, as_json: bool
) -> None:
    """Predict the class and the probability of every class for the raw rows of DATA; no labels are needed in it."""
    from wsl_toolkit.own_data import raw_rows, result_files
    from wsl_toolkit.own_data.model_file import Model
    from wsl_toolkit.own_data.serving import find_weights, predictions

    if out is not None:
        result_files.check_ending(out)
        result_files.check_file(out, (model, data, data_dir / data), force=force)
    loaded = Model.load(find_weights(model), load_plugins().registry)
    place = data_dir / data if not data.exists() and (data_dir / data).exists() else data
    x, ids = raw_rows.read_raw(place, loaded, id_column)
    frame = predictions(loaded, loaded.probabilities(x))
    if ids is not None:
        frame.insert(0, "id", ids)
    if out is not None:
        result_files.write_frame(frame, out)
        tell(f"{len(frame):,} predictions in {out}")
    if as_json:
        print_json(frame.to_dict("records"))
    elif out is None:
        click.echo(frame.to_csv(index=False), nl=False)
