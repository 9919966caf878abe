"""Data as CSV and Parquet tables, such that reading them gives the same data again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.formats import set_text
from wsl_toolkit.data.formats.table_files import NUMBER
from wsl_toolkit.data.formats.table_layout import CANDIDATES, CLASS_PREFIX, COMPLEMENTARY, ID, LABEL
from wsl_toolkit.data.table_columns import DateColumn, WordColumn
from wsl_toolkit.data.table_schema import TableSchema, date_style
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.system.files import replacing


def write(
    data: Data,
    path: Path,
    delimiter: str | None = None,
    categorical: Sequence[str] = (),
    weight: str | None = None,
) -> None:
    """Write data as a table that `table_files.read` turns into the same data, atomically.

    `categorical` are the columns that reading will be told to be categories, `weight` the one of weights.
    """
    import pyarrow as pa

    columns = columns_of(data)
    if data.annotators:
        raise ConfigError(f"{data.name}: a table of one column of sets would lose the annotators: leave them out first")
    if data.weights is not None:
        if weight is None or weight in columns:
            raise ConfigError(f"{data.name} has weights: name a column for them (weight_column) that is not there yet")
        columns[weight] = pa.array(data.weights.double().numpy())
    table = pa.table(columns)
    _check_categories(data, categorical, typed=path.suffix.lower() == ".parquet")
    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, temporary)
        else:
            from pyarrow import csv

            options = csv.WriteOptions(delimiter=delimiter or ("\t" if path.suffix.lower() == ".tsv" else ","))
            csv.write_csv(table, temporary, options)


def _check_categories(data: Data, categorical: Sequence[str], *, typed: bool) -> None:
    """Refuse categories that would be read as dates or, from a text file, which does not keep types, as numbers."""
    import pyarrow as pa
    from pyarrow import csv

    for column in data.normalise.columns if isinstance(data.normalise, TableSchema) else ():
        taken = isinstance(column, DateColumn) or column.name in categorical
        if column.categories is None or taken or not column.categories:
            continue
        if date_style(pa.chunked_array([list(column.categories)])) is not None:
            raise ConfigError(
                f"{data.name}: column {column.name!r} has categories such as {column.categories[0]!r}, which would be "
                "read as dates: say that it is categorical"
            )
        if typed:
            continue
        text = "value\n" + "\n".join('"' + name.replace('"', '""') + '"' for name in column.categories)
        options = csv.ParseOptions(newlines_in_values=True)
        kind = csv.read_csv(pa.py_buffer(text.encode()), parse_options=options).column(0).type
        if not pa.types.is_string(kind) or any(re.match(NUMBER, name) for name in column.categories):
            raise ConfigError(
                f"{data.name}: column {column.name!r} has categories such as {column.categories[0]!r}, which a text "
                f"file cannot tell from {kind if kind != pa.string() else 'numbers'}: use parquet, or say that it is "
                "categorical"
            )


def columns_of(data: Data) -> dict[str, Any]:
    """Return a table's columns: id, features, candidate sets, true labels; or say what a table cannot hold."""
    import pyarrow as pa

    if data.x.ndim != 2 or data.test_x is not None:
        what = "images" if data.x.ndim != 2 else "a separate test part"
        raise ConfigError(f"{data.name}: a table cannot hold {what}: use npz")
    names = data.class_names or tuple(str(j) for j in range(data.num_classes))
    columns: dict[str, Any] = {}
    if data.ids is not None:
        columns[ID] = pa.array(data.ids, pa.string())
    if isinstance(data.normalise, TableSchema):
        spread = [column.name for column in data.normalise.columns if isinstance(column, WordColumn)]
        if spread:
            raise ConfigError(f"{data.name}: of the text in column {spread[0]!r} no words are kept: use npz")
        features = data.normalise.decode(data.x)
    else:
        features = {f"feature {j}": pa.array(data.x[:, j].double().numpy()) for j in range(data.x.shape[1])}
    reserved = {ID, CANDIDATES, COMPLEMENTARY, LABEL}
    for name, values in features.items():
        if name in reserved or name.startswith(CLASS_PREFIX):
            raise ConfigError(f"{data.name}: a feature is called {name!r}, which a table reserves: rename it")
        columns[name] = values
    labels = data.y if data.y is not None else data.known_y
    columns |= _set_columns(data, data.candidates, names, labels)
    if labels is not None:
        known = pa.array([int(j) if j >= 0 else None for j in labels.tolist()], pa.int64())
        columns[LABEL] = pa.array(names, pa.string()).take(known)
    return columns


def _set_columns(
    data: Data, candidates: CandidateSets | None, names: Sequence[str], labels: Tensor | None
) -> dict[str, Any]:
    """Return one column of sets, or 0/1 columns where the sets do not name every class in its place."""
    import pyarrow as pa

    sets = [] if candidates is None else candidates.to_sets()
    named = {j for members in sets for j in members}
    if labels is not None:
        named |= {int(j) for j in labels.unique() if j >= 0}
    safe = len(named) == len(names) and set_text.in_order(set(names)) == tuple(names)
    if candidates is None:
        if not safe:
            raise ConfigError(f"{data.name}: a table of labels alone would lose a class or the classes' order: use npz")
        return {}
    if safe:
        return {CANDIDATES: pa.array([set_text.write([names[j] for j in members]) for members in sets])}
    mask = candidates.mask().cpu().numpy()
    return {f"{CLASS_PREFIX}{name}": pa.array(mask[:, j].astype(np.int8)) for j, name in enumerate(names)}
