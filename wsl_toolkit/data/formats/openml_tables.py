"""Tables of openml.org, through scikit-learn's reader, which keeps what it downloads below the data directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.data.formats.table_files import to_data
from wsl_toolkit.data.formats.table_layout import Layout, TableFile
from wsl_toolkit.errors import ConfigError, DataError, one_line

if TYPE_CHECKING:
    from wsl_toolkit.data.dataset import Data


def read(number: int | None, title: str | None, version: int | None, target: str | None, data_dir: Path) -> Data:
    """Return a table with true labels, from what was downloaded before or from the network."""
    if (number is None) == (title is None):
        raise ConfigError("openml: give the table's id (--dataset-id 61) or its title (--dataset-title iris), not both")
    if version is not None and title is None:
        raise ConfigError("openml: a version goes with a title; an id names one version")
    name = f"openml-{title or number}"
    bunch = _fetched(name, number, title, version, target, data_dir)
    if bunch.target is None:
        raise DataError(f"{name} names no target: choose a column with --dataset-target")
    return to_data(_table(bunch, name), name)


def _fetched(
    name: str, number: int | None, title: str | None, version: int | None, target: str | None, data_dir: Path
) -> Any:
    from sklearn.datasets import fetch_openml

    chosen: dict[str, Any] = {"data_id": number} if title is None else {"name": title, "version": version or "active"}
    try:
        return fetch_openml(
            **chosen,
            target_column=target or "default-target",
            data_home=str(data_dir),
            as_frame=True,
            n_retries=1,
            delay=0.01,
        )
    except OSError as error:  # URLError among them
        raise DataError(
            f"{name}: it is not in {data_dir / 'openml'}, and openml.org cannot be reached ({one_line(error)}): load "
            "it once where there is a network, and copy that folder here"
        ) from None
    # What was downloaded before may be damaged, which scikit-learn's reader meets with every kind of exception.
    except Exception as error:
        raise DataError(
            f"{name}: {one_line(error)} (if {data_dir / 'openml'} is damaged, move it away: it is downloaded again)"
        ) from None


def _table(bunch: Any, name: str) -> TableFile:
    """Return features and labels as a table that was read."""
    import pandas as pd
    import pyarrow as pa

    if isinstance(bunch.target, pd.DataFrame):
        raise DataError(f"{name} has several targets, {', '.join(bunch.target.columns)}: choose one (--dataset-target)")
    label = str(bunch.target.name)
    if pd.api.types.is_float_dtype(bunch.target.dtype):
        raise DataError(f"{name}: its target {label!r} is a number, not a class: choose another with --dataset-target")
    # Categories are text, so that a level that looks like a number stays a category.
    frame = bunch.data.apply(
        lambda column: column.astype("object") if isinstance(column.dtype, pd.CategoricalDtype) else column
    )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.append_column(label, pa.array(bunch.target.astype(str).tolist(), pa.string()))
    return TableFile(table=table, layout=Layout(label=label), header=tuple(table.column_names))
