"""Whole but wrong files of formats that have an inside: archives, workbooks, images, HDF5, pickles, idx."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mutations
import numpy as np
import torch

Damage = Callable[[random.Random, bytes], bytes]


def as_zip(dice: random.Random, content: bytes, damage: Damage) -> bytes:
    """An archive of which one member is damaged, gone, another's, or under another name; checksums are true."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, other = dice.choice(list(members)), dice.choice(list(members))
    kind = dice.randrange(5)
    if kind <= 1:
        members[name] = damage(dice, members[name])
    elif kind == 2:
        del members[name]
    elif kind == 3:
        members[name] = members[other]
    else:
        members[dice.choice(["../../x", "x" * 300, "x", f"{name}/"])] = members.pop(name)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, inside in members.items():
            archive.writestr(each, inside)
    return file.getvalue()


# ------------------------------------------------------------------ workbooks

CELLS: list[Any] = [
    None, True, 0, -1, 2**62, 1e308, "", " ", "nan", "x" * 3000, "=1/0", "#N/A", "[1, 2", "a||b", "left", "é😀",
    "2024-13-40",
]  # fmt: skip


def workbook(rows: Sequence[Sequence[Any]]) -> bytes:
    """A workbook of one sheet; texts that are numbers become numbers."""
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append([_number(cell) for cell in row])
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def _number(cell: Any) -> Any:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return cell


def as_workbook(dice: random.Random, rows: Sequence[Sequence[Any]], damage: Damage) -> bytes:
    if dice.random() < 0.5:
        return as_zip(dice, workbook(rows), damage)
    import datetime

    changed = [list(row) for row in rows]
    for _ in range(dice.choice([1, 1, 2, 5])):
        row = dice.choice(changed)
        dates = [datetime.datetime(1900, 1, 1), datetime.time(5), datetime.timedelta(9), datetime.date(9999, 12, 31)]
        cells = [*CELLS, *dates]
        if dice.random() < 0.7 and row:
            row[dice.randrange(len(row))] = dice.choice(cells)
        elif dice.random() < 0.5:
            row.append(dice.choice(cells))
        else:
            changed.insert(dice.randrange(len(changed)), [dice.choice(cells)] * dice.randrange(5))
    return workbook(changed)


# ------------------------------------------------------------------ MATLAB's version 7.3


def matlab_73(path: Path, content: dict[str, Any], *, sparse: bool) -> bytes:
    """What `save -v7.3` writes: a header of 512 bytes, then HDF5 with arrays transposed."""
    import h5py
    from scipy.sparse import csc_matrix

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in content.items():
            if sparse and name != "data" and getattr(array, "ndim", 0) == 2 and array.dtype == np.float64:
                matrix, group = csc_matrix(array), file.create_group(name)
                group.attrs["MATLAB_sparse"] = np.uint64(matrix.shape[0])
                group["jc"], group["ir"] = matrix.indptr.astype(np.uint64), matrix.indices.astype(np.uint64)
                group["data"] = matrix.data
            else:
                file[name] = np.asarray(array).T
    made = bytearray(path.read_bytes())
    made[:128] = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    path.unlink()
    return bytes(made)


def as_matlab_73(dice: random.Random, path: Path, content: dict[str, Any]) -> bytes:
    changed = {k: v.astype(float) if v.dtype.kind in "US" else v for k, v in _hdf_arrays(dice, content).items()}
    made = matlab_73(path, changed, sparse=dice.random() < 0.5)
    if dice.random() < 0.5:
        return made
    import h5py

    path.write_bytes(made)
    with h5py.File(path, "r+") as file:
        groups = [each for each in file.values() if isinstance(each, h5py.Group)]
        if groups and dice.random() < 0.7:
            group = dice.choice(groups)
            name = dice.choice(["jc", "ir", "data", "MATLAB_sparse"])
            if name == "MATLAB_sparse":
                group.attrs[name] = dice.choice([np.uint64(0), np.uint64(2**62), -1, "x", np.ones(3)])
            else:
                values = group[name][()]
                del group[name]
                changed = mutations.array(dice, values.astype(np.int64))
                if changed.dtype.kind in "biufc":
                    group[name] = changed
        else:
            file["new" + "/x" * dice.randrange(2)] = np.zeros(2)
            if "data" in file and dice.random() < 0.5:
                del file["data"]
                file["data"] = dice.choice([h5py.SoftLink("/new"), h5py.ExternalLink("other.mat", "/data")])
    made = path.read_bytes()
    path.unlink()
    return made


def _hdf_arrays(dice: random.Random, content: dict[str, Any]) -> dict[str, Any]:
    found = mutations.arrays(dice, content)
    return {name: value for name, value in found.items() if value.dtype.kind in "biufc"}


# ------------------------------------------------------------------ images

IMAGES = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF")
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F", "YCbCr")


def image(kind: str, mode: str = "RGB", size: tuple[int, int] = (9, 7)) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", size, (200, 30, 90)).convert(mode).save(file, kind)
    return file.getvalue()


def as_image(dice: random.Random) -> bytes:
    """An image in a mode, a size or a format of its own, or a PNG whose header says something else, checksums true."""
    if dice.random() < 0.4:
        sizes = [1, 2, 3, 40, 300]
        try:
            return image(dice.choice(IMAGES), dice.choice(MODES), (dice.choice(sizes), dice.choice(sizes)))
        except (OSError, ValueError):  # not every format has every mode
            return image("PNG", "L")
    sides = [0, 1, 9, 5000, 12_000, 40_000, 2**31 - 1]
    header = struct.pack(
        ">IIBBBBB", dice.choice(sides), dice.choice(sides), dice.choice([1, 2, 4, 8, 16, 32]),
        dice.choice([0, 2, 3, 4, 6, 7]), dice.choice([0, 0, 1]), dice.choice([0, 0, 1]), dice.choice([0, 1, 2]),
    )  # fmt: skip
    pixels = zlib.compress(dice.randbytes(dice.choice([0, 10, 500])) + bytes(dice.choice([0, 10**4, 10**6])))
    chunks = [(b"IHDR", header), (b"PLTE", bytes(30)), (b"eXIf", dice.randbytes(20)), (b"IDAT", pixels), (b"IEND", b"")]
    if dice.random() < 0.3:
        chunks.insert(dice.randrange(5), (b"zTXt", b"a\x00\x00" + zlib.compress(bytes(10**6))))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(inside)) + name + inside + struct.pack(">I", zlib.crc32(name + inside))
        for name, inside in chunks
    )


def kept_images(folder: Path) -> bytes:
    """A file of decoded images as the toolkit keeps them."""
    from wsl_toolkit.data.formats import decoded_images

    place = folder / "decoded.safetensors"
    decoded_images.save(place, torch.arange(96, dtype=torch.uint8).reshape(2, 3, 4, 4))
    return place.read_bytes()


def as_kept_images(dice: random.Random, content: bytes) -> bytes:
    from safetensors.torch import load, save

    tensors = mutations.tensors(dice, load(content))
    sums = [hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest() for value in tensors.values()]
    said = dice.choice([{"sha256": each} for each in sums] or [{}])
    return save(tensors, metadata=dice.choice([said, said, {}, {"sha256": "0"}]))


# ------------------------------------------------------------------ idx, pickles


def idx(array: np.ndarray) -> bytes:
    """The idx format: 0, 0, 8 for bytes, the number of dimensions, each dimension big-endian, the cells."""
    return bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def as_idx(dice: random.Random, shape: tuple[int, ...]) -> bytes:
    sides = [dice.choice([side, side, 0, 1, 7, 2**16, 2**31, 2**32 - 1]) for side in shape]
    sides = dice.choice([sides, sides[:-1], [*sides, 1]])
    kind = dice.choice([8, 8, 8, 9, 11, 12, 13, 14, 0])
    cells = dice.randbytes(dice.choice([0, 6, 54, 100]))
    return (
        bytes((0, 0, kind, dice.choice([len(sides), len(sides), 0, 255])))
        + struct.pack(f">{len(sides)}I", *sides)
        + cells
    )


OPCODES = [
    b"r\xff\xff\xff\x7f", b"p999999999\n", b"\x8a\xff", b"B\xff\xff\xff\x7f", b"\x96" + b"\xff" * 8, b"0", b"2",
    b"(", b"t", b"u", b"s", b"e", b"R", b"b", b"\x81", b"cos\nsystem\n", b"h\x05", b"\x94", b"}", b"]", b"N.",
]  # fmt: skip
"""Instructions of a pickle, some of which ask for far more memory than the file has bytes."""


def as_pickle(dice: random.Random, tree: Any) -> bytes:
    """A pickle of a mutated tree, now and then with an instruction of its own in the middle."""
    made = pickle.dumps(mutations.mutated(dice, tree), protocol=dice.randrange(6))
    for _ in range(dice.choice([0, 0, 1, 2])):
        at = dice.randrange(min(len(made), 60))
        made = made[:at] + dice.choice(OPCODES) + made[at:]
    return made


# ------------------------------------------------------------------ openml.org


ARFF = """@RELATION flowers
@ATTRIBUTE length REAL
@ATTRIBUTE colour {red, '2', blue}
@ATTRIBUTE class {rose, tulip, iris}
@DATA
1.5,red,rose
2.5,'2',tulip
?,blue,iris
"""


def _feature(place: int, name: str, kind: str) -> dict[str, str]:
    return {
        "index": str(place), "name": name, "data_type": kind, "is_target": str(name == "class").lower(),
        "is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": str(int(place == 0)),
    }  # fmt: skip


_FEATURES = [_feature(0, "length", "numeric"), _feature(1, "colour", "nominal"), _feature(2, "class", "nominal")]
_ABOUT = {
    "id": "7", "name": "flowers", "version": "1", "format": "ARFF", "status": "active", "description": "made by a test",
    "url": "https://www.openml.org/data/v1/download/7/flowers.arff",
    "md5_checksum": hashlib.md5(ARFF.encode(), usedforsecurity=False).hexdigest(),
}  # fmt: skip
OPENML = {
    "api/v1/json/data/7": json.dumps({"data_set_description": _ABOUT}),
    "api/v1/json/data/features/7": json.dumps({"data_features": {"feature": _FEATURES}}),
    "api/v1/json/data/qualities/7": json.dumps(
        {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": "3.0"}]}}
    ),
    "data/v1/download/7/flowers.arff": ARFF,
}
"""What scikit-learn keeps of a table, by address."""


def openml_of(table: bytes) -> dict[str, str]:
    """The same answers with the true checksum of a damaged table, so that it is parsed."""
    try:
        table = gzip.decompress(table)
    except (OSError, EOFError, zlib.error):
        return OPENML
    said = {**_ABOUT, "md5_checksum": hashlib.md5(table, usedforsecurity=False).hexdigest()}
    return {**OPENML, "api/v1/json/data/7": json.dumps({"data_set_description": said})}


def as_openml(dice: random.Random, name: str, damage: Damage) -> bytes:
    text = OPENML[name]
    if name.endswith(".arff"):
        made = mutations.as_text(dice, text) if dice.random() < 0.7 else damage(dice, text.encode())
    else:
        made = mutations.as_json(dice, json.loads(text))
    return gzip.compress(made)
