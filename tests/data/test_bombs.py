"""Small files that unpack to gigabytes, and files that reach for others: refused before any of it is read."""

from __future__ import annotations

import contextlib
import io
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.io import savemat
from scipy.sparse import csc_matrix

from wsl_builtins.datasets.mat import Mat
from wsl_builtins.datasets.npz import Npz
from wsl_toolkit.data.formats.readers import Parquet
from wsl_toolkit.data.formats.size_bounds import VARIABLE, Budget
from wsl_toolkit.errors import ConfigError, DataError

HERE = Path()
MEGABYTE = 10**6
SETS = np.array([[1, 0, 0], [0, 1, 1], [1, 0, 1], [0, 1, 0]])
GOOD = {"data": np.eye(4), "partial_target": SETS.T.astype("f8")}
ZEROS = np.zeros((1000, 20_000))
"""160 MB that compress to a thousandth of that."""


@pytest.fixture
def peak():
    """A function that returns how much memory it took at most to load a dataset, or to refuse it."""

    def measure(dataset) -> int:
        tracemalloc.start()
        try:
            with contextlib.suppress(DataError):
                dataset.load(HERE)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measure


def test_variables_that_nobody_asked_for_are_not_unpacked(tmp_path, peak):
    savemat(tmp_path / "m.mat", {"a": ZEROS, **GOOD, "z": ZEROS}, do_compression=True)
    np.savez_compressed(tmp_path / "n.npz", a=ZEROS, x=np.eye(4), candidates=SETS)
    for dataset in (Mat(path=tmp_path / "m.mat"), Npz(path=tmp_path / "n.npz")):
        assert len(dataset.load(HERE).x) == 4  # imports, once
        assert peak(dataset) < 5 * MEGABYTE


@pytest.mark.parametrize("kind", ["mat", "mat 7.3", "npz", "parquet"])
def test_what_is_asked_for_is_refused_before_memory_is_taken(tmp_path, monkeypatch, peak, kind):
    path = tmp_path / f"bomb.{kind.split()[0]}"
    if kind == "mat":
        savemat(path, {**GOOD, "data": ZEROS}, do_compression=True)
    elif kind == "mat 7.3":
        with h5py.File(path, "w") as file:
            file.create_dataset("data", shape=(20_000, 1000), dtype="f8")  # never written: a file of 2 KB
    elif kind == "npz":
        np.savez_compressed(path, x=ZEROS, candidates=SETS)
    else:
        pq.write_table(pa.table({n: np.zeros(10**6) for n in ("label", *(f"x{i}" for i in range(20)))}), path)
    assert path.stat().st_size < MEGABYTE
    dataset = {"mat": Mat, "npz": Npz, "parquet": Parquet}[kind.split()[0]](path=path)
    monkeypatch.setenv(VARIABLE, "0.1")
    with pytest.raises(DataError, match=f"would take 0.2 GB.*{VARIABLE}=1"):
        dataset.load(HERE)
    if kind != "parquet":
        assert peak(dataset) < 5 * MEGABYTE


def test_the_bound_is_by_size_and_memory_and_can_be_set(tmp_path, monkeypatch):
    (tmp_path / "small").write_bytes(b"x")
    assert 0 < Budget.of(tmp_path / "small").left <= 2 * 10**9
    monkeypatch.setenv(VARIABLE, "5000")
    assert Budget.of(tmp_path / "small").left == 5000 * 10**9
    for wrong in ("much", "", "inf", "nan"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(ConfigError, match="number of gigabytes"):
            Budget.of(tmp_path / "small")


def element(code: int, data: bytes, length: int | None = None) -> bytes:
    return code.to_bytes(4, "little") + (len(data) if length is None else length).to_bytes(4, "little") + data


def mat_file(path: Path, inner: bytes) -> Mat:
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + element(15, zlib.compress(inner)))
    return Mat(path=path)


def test_a_compressed_variable_unpacks_to_what_it_says(tmp_path, peak):
    head = element(6, bytes(8)) + element(5, bytes(8)) + element(1, b"data\0\0\0\0", 4)
    with pytest.raises(DataError, match="another size than it says"):
        mat_file(tmp_path / "more.mat", element(14, head) + bytes(10**8)).load(HERE)
    assert peak(Mat(path=tmp_path / "more.mat")) < 5 * MEGABYTE
    with pytest.raises(DataError, match=r"would take 4\.3 GB"):
        mat_file(tmp_path / "less.mat", element(14, head, 2**32 - 8)).load(HERE)


def test_a_sparse_matrix_too_large_to_be_dense_is_refused(tmp_path):
    data = csc_matrix((np.ones(1), ([2], [0])), shape=(2**31 - 1, 1))
    savemat(tmp_path / "wide.mat", {"data": data, "partial_target": np.ones((2, 3))})
    with pytest.raises(DataError, match=r"'data', 2147483647×1, would take 17\.2 GB"):
        Mat(path=tmp_path / "wide.mat").load(HERE)


def test_an_array_whose_header_lies_about_its_size_is_refused(tmp_path, peak):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**8, 1)})
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("x.npy", buffer.getvalue() + bytes(80))
    with pytest.raises(DataError, match="'x' is damaged: 80 bytes for a shape that needs 800,000,000"):
        Npz(path=tmp_path / "lie.npz").load(HERE)


# ------------------------------------------------------------ out of the file


@pytest.fixture
def secret(tmp_path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(np.arange(9, dtype="f8").tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = np.arange(9.0).reshape(3, 3)
    return path


def lead_out(file: h5py.File, how: str, secret: Path) -> None:
    """Make `data` of a file come from elsewhere."""
    other = str(secret.parent / "other.h5")
    if how == "external storage":
        file.create_dataset("data", (3, 3), "f8", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    elif how == "virtual":
        layout = h5py.VirtualLayout((3, 3), "f8")
        layout[:] = h5py.VirtualSource(other, "data", shape=(3, 3))
        file.create_virtual_dataset("data", layout)
    elif how == "external link":
        file["data"] = h5py.ExternalLink(other, "/data")
    elif how == "soft link":
        file["door"] = h5py.ExternalLink(other, "/")
        file["data"] = h5py.SoftLink("/door/data")
    else:
        group = file.create_group("data")
        group.attrs["MATLAB_sparse"] = np.uint64(3)
        group["jc"] = np.array([0, 1, 2, 3])
        group["ir"] = np.array([0, 1, 2])
        if how == "part of a sparse matrix, by link":
            group["data"] = h5py.ExternalLink(other, "/data")
        else:
            group.create_dataset("data", (3,), "f8", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])


@pytest.mark.parametrize(
    "how",
    [
        "external storage",
        "virtual",
        "external link",
        "soft link",
        "part of a sparse matrix, by link",
        "part of a sparse matrix, stored outside",
    ],
)
def test_no_other_file_is_read_through_a_mat_file(tmp_path, secret, how):
    with h5py.File(tmp_path / "evil.mat", "w") as file:
        file["partial_target"] = SETS.astype("f8")
        lead_out(file, how, secret)
    with pytest.raises(DataError, match=r"out of the file|in another file"):
        Mat(path=tmp_path / "evil.mat").load(HERE)


def test_no_other_file_is_read_through_a_reference(tmp_path, secret):
    with h5py.File(tmp_path / "evil.mat", "w") as file:
        file["data"], file["partial_target"] = np.eye(4), SETS.astype("f8")
        outside = [(str(secret), 0, h5py.h5f.UNLIMITED)]
        stolen = file.create_dataset("#refs#/a", (24,), "u1", external=outside)
        references = np.array([stolen.ref] * 3, dtype=h5py.ref_dtype)
        file.create_dataset("class_names", data=references, dtype=h5py.ref_dtype)
    with pytest.raises(DataError, match="in another file"):
        Mat(path=tmp_path / "evil.mat").load(HERE)
