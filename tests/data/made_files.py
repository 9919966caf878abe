"""Small files in the formats of the real ones: idx, CIFAR's pickled batches, .mat of versions 5 and 7.3."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csc_matrix
from torchvision import datasets as tv

IDX_FILES = {"train": 20, "t10k": 8}


def idx_bytes(array: np.ndarray) -> bytes:
    """The idx format: 0, 0, 8 for bytes, the number of dimensions, each dimension big-endian, the cells."""
    return bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def make_idx_files(folder: Path, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    made = {}
    for part, n in IDX_FILES.items():
        made[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        made[f"{part}-labels-idx1-ubyte"] = (np.arange(n) % 10).astype(np.uint8)
    for name, array in made.items():
        (folder / name).write_bytes(idx_bytes(array))
    return made


def make_cifar(root: Path, source: type, monkeypatch: pytest.MonkeyPatch, classes: int) -> dict[str, np.ndarray]:
    """Write batches as the originals are pickled, and let torchvision expect *their* checksums."""
    rng = np.random.default_rng(1)
    folder = root / source.base_folder
    folder.mkdir(parents=True)
    key = "labels" if source is tv.CIFAR10 else "fine_labels"
    made = {}

    def write(name: str, content: dict[str, object]) -> str:
        data = pickle.dumps(content, protocol=2)
        (folder / name).write_bytes(data)
        return hashlib.md5(data).hexdigest()

    def batches(listed: list[list[str]]) -> list[list[str]]:
        sums = []
        for name, _ in listed:
            made[name] = rng.integers(0, 256, (classes, 3072), dtype=np.uint8)
            sums.append([name, write(name, {"data": made[name], key: list(range(classes))})])
        return sums

    monkeypatch.setattr(source, "train_list", batches(source.train_list))
    monkeypatch.setattr(source, "test_list", batches(source.test_list))
    md5 = write(source.meta["filename"], {source.meta["key"]: [f"class {j}" for j in range(classes)]})
    monkeypatch.setattr(source, "meta", {**source.meta, "md5": md5})
    return made


def partial_labels(n: int = 5, num_classes: int = 3, features: int = 2) -> dict[str, np.ndarray]:
    """The variables of a .mat file: data n×d, partial_target and target K×n."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % num_classes
    target = np.zeros((num_classes, n))
    target[labels, np.arange(n)] = 1
    partial = target.copy()
    partial[(labels + 1) % num_classes, np.arange(n)] = 1
    return {"data": rng.normal(size=(n, features)), "partial_target": partial, "target": target}


def write_v5(path: Path, content: dict[str, np.ndarray]) -> None:
    """Write a file laid out as the community's are: labels sparse, everything compressed."""
    savemat(path, {k: v if k == "data" else csc_matrix(v) for k, v in content.items()}, do_compression=True)


def write_v73(
    path: Path, content: dict[str, np.ndarray], *, sparse: bool, class_names: list[str] | None = None
) -> None:
    """Write what MATLAB's `save -v7.3` writes: a 512-byte header, then HDF5 with arrays transposed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in content.items():
            if sparse and name != "data":
                matrix = csc_matrix(array)
                group = file.create_group(name)
                group.attrs["MATLAB_class"] = np.bytes_("double")
                group.attrs["MATLAB_sparse"] = np.uint64(matrix.shape[0])
                group["jc"] = matrix.indptr.astype(np.uint64)
                if matrix.nnz:
                    group["data"], group["ir"] = matrix.data, matrix.indices.astype(np.uint64)
            else:
                file[name] = array.T
                file[name].attrs["MATLAB_class"] = np.bytes_("double")
        if class_names:
            for i, text in enumerate(class_names):
                file[f"#refs#/{i}"] = np.array([[ord(c)] for c in text], dtype=np.uint16)
            references = np.array([[file[f"#refs#/{i}"].ref for i in range(len(class_names))]], dtype=h5py.ref_dtype)
            file.create_dataset("class_names", data=references.T, dtype=h5py.ref_dtype)
    header = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created by a test, HDF5 schema 1.00 .".ljust(124) + b"\x00\x02IM"
    with path.open("r+b") as file:
        file.write(header)
