"""The community's .mat files: the real ones, both versions, and everything that can be wrong with one."""

from __future__ import annotations

import builtins
import io
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from damaging import damage, loads_or_says_why
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_files import partial_labels as variables
from made_files import write_v5, write_v73
from scipy.io import loadmat, savemat
from scipy.sparse import csc_matrix

from wsl_builtins.datasets.mat import Mat
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.formats.mat5 import read_version_5, sparse
from wsl_toolkit.data.formats.size_bounds import Budget
from wsl_toolkit.errors import ConfigError, DataError, LabelError, WslError
from wsl_toolkit.labels.candidate_sets import CandidateSets

HERE = Path()


def read_content(content: bytes, wanted: list[str]) -> dict:
    return read_version_5(io.BytesIO(content), wanted, Budget(2**30))


@pytest.mark.parametrize(
    ("name", "n", "num_classes", "features", "mean_size", "singletons"),
    [
        pytest.param("lost", 1122, 16, 108, 2.23, 67, marks=pytest.mark.data("pll/lost.mat")),
        pytest.param("MSRCv2", 1758, 23, 48, 3.16, 140, marks=pytest.mark.data("pll/MSRCv2.mat")),
        pytest.param("BirdSong", 4998, 13, 38, 2.18, 1632, marks=pytest.mark.data("pll/BirdSong.mat")),
    ],
)
def test_the_real_files_have_the_published_numbers(data_dir, name, n, num_classes, features, mean_size, singletons):
    data = Mat(path=Path("pll") / f"{name}.mat").load(data_dir)
    assert data.name == name
    assert data.x.shape == (n, features)
    assert data.num_classes == num_classes
    assert round(data.candidates.mean_size, 2) == mean_size
    assert int(data.candidates.histogram()[1]) == singletons
    assert data.candidates.full_count == 0
    assert data.test_x is None
    assert bool(data.candidates.mask().gather(1, data.y.unsqueeze(1)).all()), "a true label is outside its set"


@pytest.fixture(params=["v5 dense", "v5 sparse", "v7.3 dense", "v7.3 sparse"])
def file_of(request, tmp_path):
    """A function that writes variables in each of the four ways."""
    version, kind = request.param.split()

    def write(content: dict[str, np.ndarray]) -> Mat:
        path = tmp_path / "made.mat"
        if version == "v7.3":
            write_v73(path, content, sparse=kind == "sparse")
        else:
            sparse = {k: csc_matrix(v) if k != "data" and kind == "sparse" else v for k, v in content.items()}
            savemat(path, sparse)
        return Mat(path=path)

    return write


def test_every_version_and_storage_reads_alike(file_of):
    content = variables()
    data = file_of(content).load(HERE)
    assert np.array_equal(data.x.numpy(), content["data"])
    assert np.array_equal(data.candidates.mask().numpy(), content["partial_target"].T == 1)
    assert data.y.tolist() == [0, 1, 2, 0, 1]
    assert data.x.dtype == torch.float64


@pytest.mark.parametrize("how", ["per-feature", "min-max", "none"])
def test_features_are_scaled_as_asked(tmp_path, how):
    content = variables()
    savemat(tmp_path / "made.mat", content)
    data = Mat(path=tmp_path / "made.mat", normalise=how).load(HERE)
    assert np.array_equal(data.x.numpy(), content["data"]), "what is loaded is raw"
    scaled = data.fit_inputs(torch.arange(len(data.x)))(data.x)
    wanted = Data(name="t", x=data.x, y=data.y, num_classes=3, normalise=how).fit_inputs(torch.arange(len(data.x)))
    assert torch.equal(scaled, wanted(data.x))
    if how == "min-max":
        assert (float(scaled.min()), float(scaled.max())) == (0, 1)


def test_without_target_there_are_no_true_labels(file_of):
    content = variables()
    del content["target"]
    data = file_of(content).load(HERE)
    assert data.y is None
    assert data.known_y is None
    assert data.candidates is not None


def test_an_all_zero_target_column_is_an_unknown_label(file_of):
    content = variables()
    content["target"][:, 3] = 0
    data = file_of(content).load(HERE)
    assert data.y is None
    assert data.known_y.tolist() == [0, 1, 2, -1, 1]


def test_a_target_of_zeros_only_is_no_label_at_all(file_of):
    content = variables()
    content["target"][:] = 0
    assert file_of(content).load(HERE).known_y.tolist() == [-1] * 5


def test_class_names_behind_hdf5_references_are_read(tmp_path):
    write_v73(tmp_path / "named.mat", variables(), sparse=True, class_names=["chat", "éléphant d'Asie", "犬"])
    assert Mat(path=tmp_path / "named.mat").load(HERE).class_names == ("chat", "éléphant d'Asie", "犬")


def test_a_full_set_is_kept(file_of):
    content = variables()
    content["partial_target"][:, 2] = 1
    assert file_of(content).load(HERE).candidates.full_count == 1


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda v: v["partial_target"].__setitem__((slice(None), 2), 0), LabelError, "set of example 2 is empty"),
        (lambda v: v["partial_target"].__setitem__((1, 4), 0.5), DataError, "holds 0.5 at class 1, example 4"),
        (lambda v: v["partial_target"].__setitem__((1, 4), np.nan), DataError, "holds nan at class 1, example 4"),
        (lambda v: v["target"].__setitem__((slice(None), 1), 1), DataError, "gives example 1 more than one true label"),
        (lambda v: v["data"].__setitem__((3, 1), np.nan), DataError, "example 3 has nan at feature 1"),
        (lambda v: v["data"].__setitem__((3, 0), np.inf), DataError, "example 3 has inf at feature 0"),
        (lambda v: v.pop("data"), DataError, "no variable 'data'"),
        (lambda v: (v.pop("target"), v.pop("partial_target")), DataError, "no labels"),
        (lambda v: v.update(partial_target=v["partial_target"][:, :4]), DataError, "is 3×4.*K×5 or 5×K"),
        (lambda v: v.update(target=v["target"][:, :4]), DataError, "is 3×4, but data has 5 rows"),
        (lambda v: v.update(target=v["target"][:2]), DataError, "same classes"),
        (
            lambda v: v.update(partial_target=v["partial_target"][:1], target=v["target"][:1]),
            DataError,
            "is 1×5, K×n: K must be",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(file_of, spoil, error, words):
    content = variables()
    spoil(content)
    with pytest.raises(error, match=words) as caught:
        file_of(content).load(HERE)
    assert "made" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [np.array(["text"]), np.array([[1 + 2j]]), {"a": 1}], ids=["text", "complex", "struct"]
)
def test_a_variable_of_another_kind_is_named(tmp_path, value):
    savemat(tmp_path / "odd.mat", {**variables(), "data": value})
    with pytest.raises(DataError, match="variable 'data' is not a matrix of real numbers"):
        Mat(path=tmp_path / "odd.mat").load(HERE)


def test_an_hdf5_structure_is_no_matrix(tmp_path):
    with h5py.File(tmp_path / "odd.mat", "w") as file:
        file.create_group("data")
    with pytest.raises(DataError, match="'data' is a structure, not a matrix"):
        Mat(path=tmp_path / "odd.mat").load(HERE)


def test_without_h5py_the_remedy_is_named(tmp_path, monkeypatch):
    write_v73(tmp_path / "new.mat", variables(), sparse=True)
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "h5py":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DataError, match=r"pip install 'wsl-toolkit\[mat\]'"):
        Mat(path=tmp_path / "new.mat").load(HERE)


@pytest.mark.data("pll")
@pytest.mark.parametrize("name", ["lost", "MSRCv2", "BirdSong"])
def test_the_real_files_read_as_scipy_reads_them(data_dir, name):
    path = data_dir / "pll" / f"{name}.mat"
    theirs = loadmat(path)
    ours = read_content(path.read_bytes(), ["data", "target", "partial_target"])
    assert np.array_equal(ours["data"], theirs["data"])
    for key in ("target", "partial_target"):
        assert (ours[key] != theirs[key]).nnz == 0


@settings(deadline=None, max_examples=100)
@given(
    array=st.one_of(
        arrays(
            st.sampled_from(["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"]),
            st.tuples(st.integers(0, 5), st.integers(0, 5)),
        ),
        arrays("f8", st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))),
    ),
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8), max_size=4),
    compressed=st.booleans(),
)
def test_whatever_scipy_writes_is_read_as_scipy_reads_it(array, texts, compressed):
    cells = np.empty(len(texts), dtype=object)
    cells[:] = texts
    content = {"a": array, "s": csc_matrix(np.atleast_2d(array.ravel()).astype("f8")), "c": cells, "skipped": {"x": 1}}
    buffer = io.BytesIO()
    savemat(buffer, content, do_compression=compressed)
    theirs = loadmat(io.BytesIO(buffer.getvalue()))
    ours = read_content(buffer.getvalue(), ["a", "s", "c"])
    np.testing.assert_array_equal(ours["a"], theirs["a"])
    np.testing.assert_array_equal(ours["s"].toarray(), theirs["s"].toarray())
    assert list(ours["c"]) == texts
    assert "skipped" not in ours


def test_a_file_from_a_big_endian_machine_is_read():
    def element(code: int, data: bytes) -> bytes:
        return code.to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + bytes(-len(data) % 8)

    head = element(6, (6).to_bytes(4, "big") + bytes(4)) + element(5, np.array([2, 2], ">i4").tobytes())
    array = element(14, head + element(1, b"data") + element(9, np.array([1, 2, 3, 4], ">f8").tobytes()))
    found = read_content(b"MATLAB 5.0".ljust(124) + b"\x01\x00MI" + array, ["data"])
    assert found["data"].tolist() == [[1, 3], [2, 4]]


def test_a_type_code_that_crashes_other_readers_is_refused(tmp_path):
    savemat(tmp_path / "made.mat", variables())
    content = bytearray((tmp_path / "made.mat").read_bytes())
    place = content.index(np.array(variables()["data"]).T.tobytes()) - 8
    for code in (0, 8, 10, 14, 15, 19, 20, 255, 65535):
        content[place : place + 4] = code.to_bytes(4, "little")
        with pytest.raises(DataError, match="damaged"):
            read_content(bytes(content), ["data"])


@pytest.mark.parametrize(
    ("rows", "ends", "values"),
    [
        ([0, 5], [0, 1, 2], [1, 1]),
        ([0, -1], [0, 1, 2], [1, 1]),
        ([0, 1], [0, 1, 3], [1, 1]),
        ([0, 1], [0, 2, 1], [1, 1]),
        ([0, 1], [1, 1, 2], [1, 1]),
        ([0, 1], [0, 2], [1, 1]),
        ([0], [0, 1, 2], [1, 1]),
        ([0, 1], [0, 1, 2], [1]),
    ],
)
def test_sparse_parts_that_do_not_fit_are_refused_before_they_are_used(rows, ends, values):
    with pytest.raises(DataError, match="damaged sparse matrix"):
        sparse("target", (2, 2), np.array(rows), np.array(ends), np.array(values))


def test_a_missing_file_is_looked_for_in_both_places(tmp_path):
    with pytest.raises(DataError, match=r"no file pll/none\.mat, neither here nor below the data directory"):
        Mat(path=Path("pll/none.mat")).load(tmp_path)
    with pytest.raises(DataError, match="is not a file"):
        Mat(path=tmp_path).load(HERE)


@pytest.mark.parametrize("keep", [0, 1, 64, 127, 128, 200, 1000, 20_000])
def test_a_truncated_file_is_one_line(tmp_path, keep):
    write_v5(tmp_path / "whole.mat", variables(n=600, features=50))
    whole = (tmp_path / "whole.mat").read_bytes()
    assert len(whole) > 20_000
    (tmp_path / "cut.mat").write_bytes(whole[:keep])
    with pytest.raises(WslError, match=r"cut\.mat") as caught:
        Mat(path=tmp_path / "cut.mat").load(HERE)
    assert "\n" not in str(caught.value)


@pytest.mark.data("pll/lost.mat")
@pytest.mark.parametrize("keep", [0, 1, 64, 127, 128, 200, 1000, 20_000, 900_000])
def test_a_truncated_real_file_is_one_line(tmp_path, data_dir, keep):
    (tmp_path / "cut.mat").write_bytes((data_dir / "pll" / "lost.mat").read_bytes()[:keep])
    with pytest.raises(WslError, match=r"cut\.mat") as caught:
        Mat(path=tmp_path / "cut.mat").load(HERE)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    version=st.sampled_from(["v5", "v5 sparse", "v5 compressed", "v7.3 sparse", "v7.3 dense"]),
    places=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=6)), max_size=4),
    cut=st.floats(0.3, 1),
)
def test_no_damage_ends_in_a_traceback(tmp_path, version, places, cut):
    path = tmp_path / "fuzz.mat"
    if version.startswith("v5"):
        content = {**variables(), "class_names": np.array(["a", "b é", "c"], dtype=object), "other": {"a": 1}}
        if "sparse" in version:
            content["target"] = csc_matrix(content["target"])
        savemat(path, content, do_compression="compressed" in version)
    else:
        write_v73(path, variables(), sparse="sparse" in version)
    damage(path, places, cut)
    assert loads_or_says_why(Mat(path=path), HERE)


# ------------------------------------------------------------------- writing


def test_a_file_laid_out_as_the_communitys_survives_being_written(tmp_path):
    write_v5(tmp_path / "made.mat", variables(n=40, num_classes=4, features=6))
    data = Mat(path=tmp_path / "made.mat").load(HERE)
    Mat(path=tmp_path / "again.mat").write(data, HERE)
    again = Mat(path=tmp_path / "again.mat").load(HERE)
    assert again.digest() == data.digest()
    assert again.candidates == data.candidates


@pytest.mark.data("pll/lost.mat")
def test_the_real_files_survive_being_written(tmp_path, data_dir):
    data = Mat(path=data_dir / "pll" / "lost.mat").load(HERE)
    Mat(path=tmp_path / "lost.mat").write(data, HERE)
    again = Mat(path=tmp_path / "lost.mat").load(HERE)
    assert again.digest() == data.digest()
    assert again.candidates == data.candidates


def test_names_ids_and_unknown_labels_survive_being_written(tmp_path):
    names = ("chat noir", "éléphant", "犬")
    data = Data(
        name="mine",
        x=torch.randn(3, 2, dtype=torch.float64),
        candidates=CandidateSets.from_sets([[0], [1, 2], [0, 1, 2]], 3, names),
        known_y=torch.tensor([0, -1, 2]),
        num_classes=3,
        class_names=names,
        ids=("a", "b b", "ç"),
    )
    Mat(path=tmp_path / "mine.mat").write(data, HERE)
    again = Mat(path=tmp_path / "mine.mat").load(HERE)
    assert again.digest() == data.digest()
    assert (again.class_names, again.ids, again.candidates) == (names, data.ids, data.candidates)


def test_what_the_layout_cannot_hold_is_refused_and_leaves_nothing(tmp_path):
    images = Data(name="i", x=torch.zeros(2, 1, 3, 3), y=torch.tensor([0, 1]), num_classes=2)
    with pytest.raises(ConfigError, match="cannot hold images: use npz"):
        Mat(path=tmp_path / "i.mat").write(images, HERE)
    tested = Data(name="t", x=torch.zeros(2, 3), y=torch.tensor([0, 1]), num_classes=2, test_x=torch.zeros(1, 3))
    with pytest.raises(ConfigError, match="cannot hold a test part: use npz"):
        Mat(path=tmp_path / "t.mat").write(tested, HERE)
    assert list(tmp_path.iterdir()) == []
