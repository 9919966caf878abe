"""Raw rows without labels, as a model takes them: for prediction, where a file need hold nothing but inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.data.formats import images, spreadsheets, table_rows
from wsl_toolkit.data.formats.mat_files import read_variables, to_dense
from wsl_toolkit.data.formats.npz_files import read_arrays
from wsl_toolkit.data.formats.table_layout import Layout, TableFile
from wsl_toolkit.data.formats.text_dialect import Dialect, Given, check_encoding, detect
from wsl_toolkit.data.table_columns import Column
from wsl_toolkit.errors import DataError, WslError, did_you_mean, one_line

if TYPE_CHECKING:
    from wsl_toolkit.own_data.model_file import Model

TABLES = (".csv", ".tsv", ".parquet", ".xlsx")
TEXTS = (".csv", ".tsv")
ARRAYS = (".npz", ".mat")


def read_raw(
    path: Path, model: Model, id_column: str | None = None, given: Given | None = None
) -> tuple[Tensor, list[str] | None]:
    """Return the raw inputs in a file and, where a column names them, the examples' ids."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return _from_images(path, model)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        if suffix in TABLES:
            return _from_table(path, model, id_column, given)
        if suffix in ARRAYS:
            return _from_arrays(path, model), None
    except WslError as error:
        raise type(error)(f"{path.name}: {error}") from None
    # Parsers meet damaged files with every kind of exception.
    except Exception as error:
        raise DataError(f"{path} cannot be read: {one_line(error)} (is it complete?)") from None
    raise DataError(f"{path.name}: rows to predict come as {', '.join([*TABLES, *ARRAYS])}, not as {suffix!r}")


def _from_images(folder: Path, model: Model) -> tuple[Tensor, list[str]]:
    """Return all images below a folder, in the size that the model takes, with their names as ids."""
    paths = images.image_files(folder)
    if not paths:
        raise DataError(f"{folder} holds no images")
    if len(model.input_shape) != 3:
        raise DataError("the model was not fitted on images")
    channels, size, _ = model.input_shape
    return images.read_images(paths, size, channels), [str(path.relative_to(folder)) for path in paths]


def _from_table(
    path: Path, model: Model, id_column: str | None, given: Given | None
) -> tuple[Tensor, list[str] | None]:
    if model.schema is None:
        raise DataError(
            f"the model was fitted on arrays of shape {tuple(model.input_shape)} without column names: "
            f"predict from {' or '.join(ARRAYS)}, or fit it on a table"
        )
    wanted = [*model.schema.names, *([id_column] if id_column else [])]
    numbers = [column.name for column in model.schema.columns if type(column) is Column and column.categories is None]
    given = given or Given()
    if path.suffix.lower() == ".xlsx":
        file = _from_sheet(path, wanted, given.sheet or model.about.get("sheet"))
    else:
        file = read_table(path, wanted, numbers, _dialect(path, model, wanted, given))
    table = file.table
    x = model.schema.encode(table, file.where)
    ids = None if id_column is None else [str(value) for value in table.column(id_column).to_pylist()]
    return x, ids


def _dialect(path: Path, model: Model, columns: Sequence[str], given: Given) -> Dialect | None:
    """Return how a text file is read: as the user says, or as the model's own file was if that fits, or as it looks."""
    if path.suffix.lower() not in TEXTS:
        return None
    known = Dialect.from_dict(model.about.get("dialect"))
    if known is not None and given == Given():
        try:
            check_encoding(path, known.encoding)
            if set(columns) <= set(table_rows.header_of(path, known)):
                return known
        except (DataError, LookupError):
            pass
    return detect(path, given)


def _check_columns(columns: Sequence[str], names: Sequence[str]) -> None:
    for name in columns:
        if name not in names:
            raise DataError(f"column {name!r} is missing.{did_you_mean(name, names)}")


def _from_sheet(path: Path, columns: Sequence[str], sheet: str | None) -> TableFile:
    names, cells = spreadsheets.read_sheet(path, sheet)
    _check_columns(columns, table_rows.check_header(names))
    return table_rows.from_cells(names, cells, names)


def read_table(path: Path, columns: Sequence[str], numbers: Sequence[str], dialect: Dialect | None) -> TableFile:
    """Read some columns of a table, text files as text; rows of the wrong width are refused by their numbers."""
    names = table_rows.parquet_columns(path) if dialect is None else table_rows.header_of(path, dialect)
    _check_columns(columns, names)
    if dialect is None:
        return TableFile(table=table_rows.read_parquet(path, columns), layout=Layout())
    file = table_rows.parse_csv(path, dialect, names, header=names)
    if dialect.decimal == ",":
        import pyarrow.compute as pc

        for name in numbers:
            place = file.table.column_names.index(name)
            points = pc.replace_substring(file.table.column(name), ",", ".")
            file = attrs.evolve(file, table=file.table.set_column(place, name, points))
    return file


def _from_arrays(path: Path, model: Model) -> Tensor:
    if model.schema is not None:
        raise DataError(f"the model takes the columns {', '.join(model.schema.names[:5])}, …: predict from a table")
    if path.suffix.lower() == ".npz":
        array = read_arrays(path, ["x"])["x"]
    else:
        array = to_dense(_mat_variable(path, "data"), "data", path)
    wanted = model.about.get("input_dtype", "float64")
    x = torch.from_numpy(np.ascontiguousarray(array, dtype=wanted))
    x = x.unsqueeze(1) if x.ndim == 3 else x
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).flatten(1).any(1).nonzero()[0])
        column = int((~torch.isfinite(x[row])).flatten().nonzero()[0])
        raise DataError(f"example {row} has NaN or infinity at feature {column}: the model knows no missing values")
    return x


def _mat_variable(path: Path, name: str) -> Any:
    found = read_variables(path, [name])
    if name not in found:
        raise DataError(f"it has no variable {name!r}")
    return found[name]
