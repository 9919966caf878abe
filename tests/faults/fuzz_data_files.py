"""Data that people bring, sound and wrong: workbooks, images, annotators' tables, pickled labels, rows to predict."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import file_mutations as wrong
import mutations
import numpy as np
import pytest
import torch
from fuzz_user_files import small_data
from fuzzing import Target, damage

from wsl_builtins.datasets import human
from wsl_toolkit.data.formats import images, sources
from wsl_toolkit.data.mapped import is_mapped
from wsl_toolkit.own_data import fitting, model_file, raw_rows
from wsl_toolkit.plugins.loading import load_plugins

ANNOTATED = """id,length,colour,seen,remark,one,two,weight,label
a,1.5,red,2024-03-01,a small bird,left|right,left,1,left
b,2.5,blue,2024-04-11,,right,"[""right"", ""up""]",0.5,
c,,red,2023-12-31,flew away,up,up|left,2,up
d,3.5,green,,"large, brown",left,left,1,
e,4.5,blue,2024-01-05,small,right|up,up,0,right
f,5.5,red,2024-02-06,grey,up,left|up,1,
"""
ANNOTATED_COLUMNS = {
    "candidates_column": ["one", "two"], "combine": "vote", "weight_column": "weight", "hashed": ["remark"],
    "label_column": "label", "id_column": "id",
}  # fmt: skip
CLASSES = "left\nright\nup\ndown\n"
LABELS = "file,candidates,label\na.png,left|right,left\nb/c.png,right,\n"
VOTES = {0: [[0, 1], [0]], 1: [[1], [1], [2]], 2: []}


def targets(folder: Path) -> Iterator[Target]:
    """Formats that are read and not written, options of tables, images, and what a model predicts from."""
    yield from _tables(folder)
    yield from _matlab(folder)
    yield from _images(folder)
    yield from _published_sets(folder)
    yield from _rows(folder)


def _tables(folder: Path) -> Iterator[Target]:
    registry = load_plugins().registry
    rows = [line.split(",") for line in ("id,a,b,candidates", "x,1,red,left|right", "y,2.5,blue,up", "z,,red,left|up")]
    yield Target(
        name="xlsx",
        suffix=".xlsx",
        samples=(wrong.workbook(rows),),
        parse=lambda path: sources.load(path, {}, registry, path.parent),
        mutate=lambda dice: wrong.as_workbook(dice, rows, damage),
    )
    yield Target(
        name="table of annotators",
        suffix=".csv",
        samples=(ANNOTATED.encode(), ANNOTATED.replace(",", "\t").encode("utf-16"), ANNOTATED.encode("cp1252")),
        parse=lambda path: sources.load(path, ANNOTATED_COLUMNS, registry, path.parent),
        mutate=lambda dice: mutations.as_text(dice, ANNOTATED),
    )
    table = folder / "annotated.csv"
    table.write_text(ANNOTATED)
    yield Target(
        name="file of classes",
        suffix=".txt",
        samples=(CLASSES.encode(),),
        parse=lambda path: sources.load(table, {**ANNOTATED_COLUMNS, "classes_file": str(path)}, registry, path.parent),
        mutate=lambda dice: mutations.as_text(dice, CLASSES),
    )
    arrays = {
        "x": np.linspace(0, 1, 24, dtype=np.float32).reshape(6, 4), "y": np.array([0, 1, 2, 0, 1, -1]),
        "candidates": np.tile(np.eye(3, dtype=np.uint8), (2, 1)) | np.array([[0, 0, 1]], dtype=np.uint8),
        "test_x": np.ones((2, 4), dtype=np.float32), "test_y": np.array([0, 1]), "class_names": np.array(list("abc")),
        "ids": np.array(list("uvwxyz")), "weights": np.ones(6), "normalise": np.array("per-feature"),
    }  # fmt: skip
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    yield Target(
        name="npz with all arrays",
        suffix=".npz",
        samples=(file.getvalue(),),
        parse=lambda path: sources.load(path, {}, registry, path.parent),
        mutate=lambda dice: (
            mutations.as_npz(dice, arrays) if dice.random() < 0.6 else wrong.as_zip(dice, file.getvalue(), damage)
        ),
    )


def _matlab(folder: Path) -> Iterator[Target]:
    registry = load_plugins().registry
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]] * 2, dtype=float).T
    content = {"data": np.arange(12.0).reshape(6, 2), "partial_target": mask, "target": np.eye(3)[[0, 1, 2] * 2].T}
    samples = tuple(wrong.matlab_73(folder / "v73.mat", content, sparse=sparse) for sparse in (False, True))
    yield Target(
        name="mat of version 7.3",
        suffix=".mat",
        samples=samples,
        parse=lambda path: sources.load(path, {}, registry, path.parent),
        mutate=lambda dice: wrong.as_matlab_73(dice, folder / "mutated.mat", content),
    )


def _images(folder: Path) -> Iterator[Target]:
    yield Target(
        name="image",
        suffix=".png",
        samples=tuple(wrong.image(kind) for kind in wrong.IMAGES),
        parse=lambda path: _read_photos(path, "a.png"),
        mutate=wrong.as_image,
    )
    yield Target(
        name="labels of images",
        suffix=".csv",
        samples=(LABELS.encode(),),
        parse=lambda path: _read_photos(path, "labels.csv"),
        mutate=lambda dice: mutations.as_text(dice, LABELS),
    )
    kept, photos = wrong.kept_images(folder), _photos(folder)
    yield Target(
        name="kept images",
        suffix=".safetensors",
        samples=(kept,),
        parse=lambda path: _read_kept_images(path, photos),
        mutate=lambda dice: wrong.as_kept_images(dice, kept),
    )
    yield Target(
        name="kept images, mapped",
        suffix=".safetensors",
        samples=(kept,),
        parse=lambda path: _read_kept_images(path, photos, memory="0.1KB"),
        mutate=lambda dice: wrong.as_kept_images(dice, kept),
    )
    sample = wrong.idx(np.arange(54, dtype=np.uint8).reshape(6, 3, 3))
    yield Target(
        name="idx images",
        suffix=".idx",
        samples=(sample,),
        parse=lambda path: _read_idx(path, "train-images-idx3-ubyte"),
        mutate=lambda dice: wrong.as_idx(dice, (6, 3, 3)),
    )
    yield Target(
        name="idx labels",
        suffix=".idx",
        samples=(wrong.idx(np.arange(6, dtype=np.uint8)),),
        parse=lambda path: _read_idx(path, "train-labels-idx1-ubyte"),
        mutate=lambda dice: wrong.as_idx(dice, (6,)),
    )


def _fresh(path: Path) -> Path:
    """An empty folder beside a case, of the name that may be left behind."""
    place = path.parent / "fuzz"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def _photos(place: Path) -> Path:
    photos = place / "photos"
    (photos / "b").mkdir(parents=True)
    for name in ("a.png", "b/c.png"):
        (photos / name).write_bytes(wrong.image("PNG"))
    (photos / "labels.csv").write_text(LABELS)
    return photos


def _read_photos(path: Path, name: str) -> Any:
    """Read a folder of images and their labels, one of whose files is damaged."""
    place = _fresh(path)
    photos = _photos(place)
    path.rename(photos / name)
    return sources.load(photos, {"cache": str(place / "cache"), "size": 4}, load_plugins().registry, place)


def _read_kept_images(path: Path, photos: Path, memory: str = "") -> None:
    """Read images beside which what was decoded before is damaged: they are decoded again.

    Where there is too little memory for them, they are mapped.
    """
    decoder = images.Decoder(size=4, cache=_fresh(path))
    files = images.image_files(photos)
    path.rename(decoder.cache_file(photos, files))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WSL_MEMORY", memory)
        found = decoder.read(photos, files)
    assert is_mapped(found) == bool(memory)
    assert (found.shape, found.dtype) == ((2, 3, 4, 4), torch.uint8)


def _read_idx(path: Path, name: str) -> Any:
    place = _fresh(path)
    raw = place / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(wrong.idx(np.zeros((6, 3, 3), dtype=np.uint8)))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(wrong.idx(np.arange(6, dtype=np.uint8)))
    path.rename(raw / name)
    return load_plugins().registry.create("dataset", "mnist", {}).load(place)


def _published_sets(folder: Path) -> Iterator[Target]:
    """Labels of people as they are published: pickles; and tables of openml.org as scikit-learn keeps them."""
    yield Target(
        name="pickled votes",
        suffix=".pkl",
        samples=tuple(pickle.dumps(VOTES, protocol=number) for number in range(6)),
        parse=_read_votes,
        mutate=lambda dice: wrong.as_pickle(dice, VOTES),
    )
    pixels = np.zeros((4, 64, 64, 3), dtype=np.uint8)
    labelled = {"images": pixels, "ord_labels": [0, 1, 2, 3], "cl_labels": [[1, 2, 3], [0, 2, 3], [5, 6, 7], [9, 8, 7]]}
    yield Target(
        name="pickled images",
        suffix=".pkl",
        samples=tuple(pickle.dumps(labelled, protocol=number) for number in (2, 4)),
        parse=lambda path: _read_pickled_images(path, {"images": pixels[:2], "ord_labels": [0, 1]}),
        mutate=lambda dice: wrong.as_pickle(dice, labelled),
    )
    for name, text in wrong.OPENML.items():
        yield Target(
            name=f"openml's {name}",
            suffix=".gz",
            samples=(gzip.compress(text.encode()),),
            parse=lambda path, name=name: _read_openml(path, name),
            mutate=lambda dice, name=name: wrong.as_openml(dice, name, damage),
        )


def _read_votes(path: Path) -> Any:
    votes = human.read_votes(path)
    for variant in ("aggregate", "vaguest", "vote"):
        combine = human.PlCifar10(variant=variant).combined
        [combine(sets) for sets in votes.values()]
    return list(human.apart({k: v for k, v in votes.items() if 0 <= k < 9}, 9, small_data(names=True)))


def _read_pickled_images(path: Path, test: dict[str, Any]) -> Any:
    place = _fresh(path)
    dataset = human.ClMicroImageNet10()
    (place / dataset.file).parent.mkdir()
    path.rename(place / dataset.file)
    (place / dataset.test_file).write_bytes(pickle.dumps(test))
    return dataset.load(place)


def _read_openml(path: Path, name: str) -> Any:
    from email.message import Message
    from unittest import mock
    from urllib.error import HTTPError

    place = _fresh(path)
    known = wrong.openml_of(path.read_bytes()) if name.endswith(".arff") else wrong.OPENML
    for each, text in known.items():
        file = place / "openml" / "openml.org" / f"{each}.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        path.rename(file) if each == name else file.write_bytes(gzip.compress(text.encode()))
    # What is damaged is downloaded again, by scikit-learn; an answer that is none is not waited for.
    gone = HTTPError("", 412, "no such table", Message(), None)
    with mock.patch("sklearn.datasets._openml.urlopen", side_effect=gone):
        return load_plugins().registry.create("dataset", "openml", {"id": 7}).load(place)


def _rows(folder: Path) -> Iterator[Target]:
    """Rows for a model: of a table in every format, and of an array."""
    registry = load_plugins().registry
    options = {"candidates_column": ["one"], "hashed": ["remark"], "label_column": "label", "id_column": "id"}
    table = folder / "rows.csv"
    table.write_text(ANNOTATED)
    data = sources.load(table, {**options, "ignore": ["two", "weight"]}, registry, folder)
    of_table, of_array = _fitted(data, folder / "table.safetensors"), _fitted(small_data(names=True), folder / "array")
    rows = [line.split(",") for line in ANNOTATED.replace('""', "").replace('"', "").splitlines()[:4]]
    file = io.BytesIO()
    arrays = {"x": np.linspace(0, 1, 12).reshape(3, 4)}
    np.savez(file, **arrays)
    kinds: list[tuple[str, bytes, Any, Callable[[random.Random], bytes]]] = [
        (".csv", ANNOTATED.encode(), of_table, lambda dice: mutations.as_text(dice, ANNOTATED)),
        (".xlsx", wrong.workbook(rows), of_table, lambda dice: wrong.as_workbook(dice, rows, damage)),
        (".npz", file.getvalue(), of_array, lambda dice: mutations.as_npz(dice, arrays)),
    ]
    for suffix, sample, model, mutate in kinds:
        yield Target(
            name=f"rows to predict {suffix}",
            suffix=suffix,
            samples=(sample,),
            parse=lambda path, model=model: model.probabilities(raw_rows.read_raw(path, model)[0]),
            mutate=mutate,
        )


def _fitted(data: Any, path: Path) -> Any:
    registry = load_plugins().registry
    options = fitting.options_for(registry, estimator=("cc", {}), epochs=1, lr=0.1, weight_decay=0.0)
    fitted = fitting.fit(data, registry, options, torch.arange(len(data.x)))
    model_file.model_from(fitted, data, fitting.describe(options, fitted)).save(path)
    return model_file.Model.load(path, registry)
