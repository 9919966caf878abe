"""NumPy archives, in and out, without pickle."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from damaging import damage, loads_or_says_why
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wsl_builtins.datasets.npz import Npz
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.table_schema import Column, TableSchema
from wsl_toolkit.errors import ConfigError, DataError, LabelError, WslError
from wsl_toolkit.labels.candidate_sets import CandidateSets

HERE = Path()
SETS = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 1]], dtype=np.uint8)


def saved(tmp_path: Path, **arrays: object) -> Npz:
    np.savez(tmp_path / "made.npz", **arrays)
    return Npz(path=tmp_path / "made.npz")


def test_inputs_labels_and_candidates_are_read(tmp_path):
    data = saved(tmp_path, x=np.eye(3), y=[0, 1, 2], candidates=SETS).load(HERE)
    assert data.candidates.to_sets() == [[0, 1], [1], [0, 1, 2]]
    assert data.y.tolist() == [0, 1, 2]
    assert (data.num_classes, data.x.dtype, data.normalise) == (3, torch.float64, "per-feature")


def test_candidates_alone_or_labels_alone_are_enough(tmp_path):
    assert saved(tmp_path, x=np.eye(3), candidates=SETS.astype(bool)).load(HERE).y is None
    data = saved(tmp_path, x=np.eye(3), y=np.array([0, 4, 2])).load(HERE)
    assert data.candidates is None
    assert data.num_classes == 5


@pytest.mark.parametrize(
    ("array", "shape", "dtype", "normalise"),
    [
        (np.zeros((3, 4, 5), dtype=np.uint8), (1, 4, 5), torch.uint8, "per-channel"),
        (np.zeros((3, 2, 4, 5), dtype=np.float64), (2, 4, 5), torch.float32, "per-channel"),
        (np.zeros((3, 4), dtype=">f4"), (4,), torch.float32, "per-feature"),
        (np.zeros((3, 4), dtype=np.int16), (4,), torch.float64, "per-feature"),
        (np.asfortranarray(np.zeros((3, 4))), (4,), torch.float64, "per-feature"),
    ],
)
def test_images_and_features_of_every_type_find_their_shape(tmp_path, array, shape, dtype, normalise):
    data = saved(tmp_path, x=array, y=[0, 1, 0]).load(HERE)
    assert (data.input_shape, data.x.dtype, data.normalise) == (shape, dtype, normalise)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", ">i4", "<u2", "f4", ">f8"])
def test_candidates_of_every_type_read_alike(tmp_path, dtype):
    data = saved(tmp_path, x=np.eye(3), candidates=SETS.astype(dtype)).load(HERE)
    assert data.candidates.to_sets() == [[0, 1], [1], [0, 1, 2]]


def test_minus_one_is_an_unknown_label_where_there_are_candidates(tmp_path):
    data = saved(tmp_path, x=np.eye(3), y=[0, -1, 2], candidates=SETS).load(HERE)
    assert data.y is None
    assert data.known_y.tolist() == [0, -1, 2]
    with pytest.raises(LabelError, match="label -1 of example 1 is out of range"):
        saved(tmp_path, x=np.eye(3), y=[0, -1, 2]).load(HERE)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": [0, 1, 2]}, "has no array x, only y"),
        ({"x": np.eye(3)}, "neither true labels nor candidate sets"),
        ({"x": np.eye(3), "y": [0, 1]}, "there are 2 labels for 3 examples"),
        ({"x": np.eye(3), "y": [0.5, 1, 2]}, "array y must be a vector of whole numbers"),
        ({"x": np.eye(3), "y": [0, 1, 2**40]}, "names class 1099511627776"),
        ({"x": np.eye(3), "y": [0, 0, 0]}, "only 1 class"),
        ({"x": np.eye(3), "candidates": SETS[:2]}, "2 candidate sets for 3 examples"),
        ({"x": np.eye(3), "candidates": SETS * 2}, "holds 2 at row 0, class 0"),
        ({"x": np.eye(3), "candidates": SETS * np.nan}, "holds nan at row 0"),
        ({"x": np.eye(3), "candidates": SETS[:, :1]}, "at least 2 classes"),
        ({"x": np.eye(3), "candidates": SETS[0]}, "2 dimensions"),
        ({"x": np.eye(3), "candidates": np.array(["a"])}, "must hold 0 and 1"),
        ({"x": np.eye(3), "candidates": [[1, 0], [0, 0], [0, 1]]}, "set of example 1 is empty"),
        ({"x": np.array([[1, np.nan]] * 3), "candidates": SETS}, "example 0 has nan at feature 1"),
        ({"x": np.zeros(3), "candidates": SETS}, "x has 1 dimensions"),
        ({"x": np.zeros((3, 2), dtype=complex), "candidates": SETS}, "x holds complex128"),
        ({"x": np.zeros((3, 9, 9, 3)), "candidates": SETS}, "channels last: transpose it"),
        ({"x": np.eye(3), "candidates": SETS, "class_names": ["a", "b"]}, "2 class names were given for 3"),
        ({"x": np.eye(3), "candidates": SETS, "class_names": ["a", "b", "a"]}, "'a' is used twice"),
        ({"x": np.eye(3), "candidates": SETS, "ids": ["1", "2", "1"]}, "examples 0 and 2 have the same id '1'"),
        ({"x": np.eye(3), "candidates": SETS, "ids": np.eye(3)}, "vector of texts"),
        ({"x": np.eye(3), "candidates": SETS, "normalise": "a lot"}, "normalise must be"),
        ({"x": np.eye(3), "candidates": SETS, "test_x": np.eye(2)}, "test examples have shape"),
        ({"x": np.array([object()] * 3), "candidates": SETS}, "Object arrays cannot be loaded"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_file(tmp_path, arrays, words):
    with pytest.raises(WslError, match=words) as caught:
        saved(tmp_path, **arrays).load(HERE)
    assert "made" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pickle_in_disguise_is_never_run(tmp_path):
    harm = tmp_path / "harm"

    class Harmful:
        def __reduce__(self):
            return Path.touch, (harm,)

    (tmp_path / "evil.npz").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(DataError, match="cannot be read"):
        Npz(path=tmp_path / "evil.npz").load(HERE)
    assert not harm.exists()


def test_a_single_array_is_no_archive(tmp_path):
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.eye(3))
    with pytest.raises(DataError, match="single array"):
        Npz(path=tmp_path / "one.npz").load(HERE)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=6)), max_size=4),
    cut=st.floats(0, 1),
    compressed=st.booleans(),
)
def test_no_damage_ends_in_a_traceback(tmp_path, places, cut, compressed):
    path = tmp_path / "fuzz.npz"
    (np.savez_compressed if compressed else np.savez)(path, x=np.eye(3), y=[0, 1, 2], candidates=SETS)
    damage(path, places, cut)
    assert loads_or_says_why(Npz(path=path), HERE)


# ------------------------------------------------------------------- writing


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_everything_survives_being_written(tmp_path, dtype):
    names = ("chat noir", "éléphant", "犬")
    data = Data(
        name="mine",
        x=torch.randint(0, 255, (3, 4)).to(dtype),
        candidates=CandidateSets.from_mask(SETS, names),
        known_y=torch.tensor([0, -1, 2]),
        num_classes=3,
        class_names=names,
        ids=("a", "b b", "ç"),
        test_x=torch.randint(0, 255, (2, 4)).to(dtype),
        test_y=torch.tensor([1, 2]),
        normalise="none",
    )
    Npz(path=tmp_path / "mine.npz").write(data, HERE)
    again = Npz(path=tmp_path / "mine.npz").load(HERE)
    assert again.digest() == data.digest()
    assert (again.class_names, again.ids, again.candidates) == (names, data.ids, data.candidates)


def test_images_survive_being_written(tmp_path):
    data = Data(
        name="i",
        x=torch.randint(0, 255, (3, 1, 5, 4), dtype=torch.uint8),
        y=torch.tensor([0, 1, 1]),
        num_classes=2,
        normalise="per-channel",
    )
    Npz(path=tmp_path / "i.npz").write(data, HERE)
    assert Npz(path=tmp_path / "i.npz").load(HERE).digest() == data.digest()


def test_a_table_is_refused_and_nothing_is_left(tmp_path):
    schema = TableSchema((Column("c", ("x",)),))
    data = Data(
        name="t", x=torch.zeros(2, 1, dtype=torch.float64), y=torch.tensor([0, 1]), num_classes=2, normalise=schema
    )
    with pytest.raises(ConfigError, match="use csv or parquet"):
        Npz(path=tmp_path / "t.npz").write(data, HERE)
    assert list(tmp_path.iterdir()) == []


def test_weights_survive_being_written_and_nonsense_is_refused(tmp_path):
    data = Data(
        name="w",
        x=torch.zeros(3, 2),
        candidates=CandidateSets.from_sets([[0], [1], [0, 1]], 3),
        num_classes=3,
        weights=torch.tensor([1.0, 0.0, 2.5]),
    )
    Npz(path=tmp_path / "w.npz").write(data, tmp_path)
    assert Npz(path=tmp_path / "w.npz").load(tmp_path).weights.tolist() == [1.0, 0.0, 2.5]
    np.savez(tmp_path / "bad.npz", x=np.zeros((3, 2)), y=np.array([0, 1, 2]), weights=np.array([["1"]]))
    with pytest.raises(DataError, match=r"bad\.npz: array weights must be a vector of numbers"):
        Npz(path=tmp_path / "bad.npz").load(tmp_path)
