"""Variables of a .mat file, whatever its version: MATLAB's own format up to version 7, HDF5 from 7.3 on."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from wsl_toolkit.data.formats.mat5 import read_version_5, sparse
from wsl_toolkit.errors import DataError

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def read_variables(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    """Return those of the wanted variables that there are: arrays, scipy's sparse matrices, arrays of texts."""
    content = path.read_bytes()
    if content.startswith(HDF5_SIGNATURE) or content[512:520] == HDF5_SIGNATURE:
        return _read_hdf5(path, wanted)
    return read_version_5(content, wanted)


def _read_hdf5(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    """Read a version 7.3 file: arrays lie transposed, sparse ones as data, ir and jc, strings behind references."""
    try:
        import h5py
    except ImportError:
        raise DataError(
            "it is of MATLAB's version 7.3, which needs h5py: pip install 'wsl-toolkit[mat]', or save it with -v7"
        ) from None
    with h5py.File(path, "r") as file:
        found = {name: file[name] for name in wanted if name in file}
        return {
            name: _sparse(value) if isinstance(value, h5py.Group) else _dense(value, file)
            for name, value in found.items()
        }


def _dense(value: Any, file: Any) -> Any:
    import h5py

    if h5py.check_ref_dtype(value.dtype) is None:
        return np.asarray(value).T
    texts = ["".join(map(chr, np.asarray(file[reference]).ravel())) for reference in np.asarray(value).ravel()]
    return np.array(texts, dtype=object)


def _sparse(group: Any) -> Any:
    name = group.name.strip("/")
    if "jc" not in group or "MATLAB_sparse" not in group.attrs:
        raise DataError(f"variable {name!r} is a structure, not a matrix")
    # MATLAB leaves the values of an all-zero matrix out.
    rows, values = (np.asarray(group[key]) if key in group else np.zeros(0) for key in ("ir", "data"))
    ends = np.asarray(group["jc"])
    return sparse(name, (int(group.attrs["MATLAB_sparse"]), len(ends) - 1), rows, ends, values)
