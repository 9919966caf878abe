"""Variables of a .mat file, whatever its version: MATLAB's own format up to version 7, HDF5 from 7.3 on."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from wsl_toolkit.data.formats.mat5 import read_version_5, sparse
from wsl_toolkit.data.formats.size_bounds import Budget
from wsl_toolkit.errors import DataError

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def read_variables(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    """Return those of the wanted variables that there are: arrays, scipy's sparse matrices, arrays of texts.

    Variables that are not wanted are neither read nor unpacked, and of those that are the size is checked before memory
    is taken.
    """
    budget = Budget.of(path)
    with path.open("rb") as file:
        head = file.read(512 + len(HDF5_SIGNATURE))
        if not (head.startswith(HDF5_SIGNATURE) or head.endswith(HDF5_SIGNATURE)):
            return read_version_5(file, wanted, budget)
    return _read_hdf5(path, wanted, budget)


def to_dense(matrix: Any, name: str, path: Path) -> np.ndarray:
    """Return a variable as a dense matrix; a sparse one may be too large for that, which is said before it is tried."""
    if not hasattr(matrix, "toarray"):
        return np.asarray(matrix)
    cells = int(matrix.shape[0]) * int(matrix.shape[1])
    Budget.of(path).take(cells * matrix.dtype.itemsize, f"variable {name!r}, {matrix.shape[0]}×{matrix.shape[1]},")
    dense: np.ndarray = matrix.toarray()
    return dense


def _read_hdf5(path: Path, wanted: Collection[str], budget: Budget) -> dict[str, Any]:
    """Read a version 7.3 file: arrays lie transposed, sparse ones as data, ir and jc, strings behind references."""
    try:
        import h5py
    except ImportError:
        raise DataError(
            "it is of MATLAB's version 7.3, which needs h5py: pip install 'wsl-toolkit[mat]', or save it with -v7"
        ) from None
    with h5py.File(path, "r") as file:
        found = {name: _member(file, name) for name in wanted if _has(file, name)}
        return {
            name: _sparse(value, budget) if isinstance(value, h5py.Group) else _dense(value, file, budget)
            for name, value in found.items()
        }


def _has(group: Any, name: str) -> bool:
    return group.get(name, getlink=True) is not None


def _member(group: Any, name: str) -> Any:
    """Return a member that lies in the file itself; a link may lead to any other file of the system."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DataError(f"variable {name!r} is a link, which may lead out of the file: save the variable itself")
    return group[name]


def _values(dataset: Any, name: str, budget: Budget) -> np.ndarray:
    """Return a data set's values, if they lie in the file itself and fit into memory."""
    import h5py

    if not isinstance(dataset, h5py.Dataset):
        raise DataError(f"variable {name!r} is not a matrix of real numbers")
    if dataset.external or dataset.is_virtual:
        raise DataError(f"variable {name!r} lies in another file, which is not read: save the variable itself")
    if dataset.dtype.kind not in "biuf" and h5py.check_ref_dtype(dataset.dtype) is not h5py.Reference:
        raise DataError(f"variable {name!r} is not a matrix of real numbers")
    budget.take(dataset.size * dataset.dtype.itemsize if dataset.size else 0, f"variable {name!r}")
    return np.asarray(dataset)


def _dense(dataset: Any, file: Any, budget: Budget) -> Any:
    name = dataset.name.strip("/")
    values = _values(dataset, name, budget)
    if dataset.dtype.kind in "biuf":
        return values.T
    texts = ["".join(map(chr, _values(file[reference], name, budget).ravel())) for reference in values.ravel()]
    return np.array(texts, dtype=object)


def _sparse(group: Any, budget: Budget) -> Any:
    name = group.name.strip("/")
    if not _has(group, "jc") or "MATLAB_sparse" not in group.attrs:
        raise DataError(f"variable {name!r} is a structure, not a matrix")
    # MATLAB leaves the values of an all-zero matrix out.
    rows, values, ends = (
        _values(_member(group, key), f"{name}/{key}", budget) if _has(group, key) else np.zeros(0)
        for key in ("ir", "data", "jc")
    )
    return sparse(name, (int(group.attrs["MATLAB_sparse"]), len(ends) - 1), rows, ends, values)
