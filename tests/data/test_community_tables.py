"""The community's tables by name, from files made in every layout that is around; lost and its like from real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_files import partial_labels, write_v73
from scipy.io import savemat
from scipy.sparse import csc_matrix

from wsl_builtins.datasets import community
from wsl_builtins.datasets.mat import Mat
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import DataError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins

NAMES = (
    "lost",
    "msrcv2",
    "birdsong",
    "soccer-player",
    "yahoo-news",
    "mirflickr",
    "fg-net",
    "italian",
    "malagasy",
    "english",
)


def create(name: str, **values: Any) -> Any:
    return load_plugins().registry.create("dataset", name, values)


def write(path: Path, content: dict[str, np.ndarray], *, sparse: bool, dtype: str, version: str) -> None:
    content = {key: value if key == "data" else value.astype(dtype) for key, value in content.items()}
    if version == "7.3":
        write_v73(path, content, sparse=sparse)
    else:
        savemat(path, {k: csc_matrix(v.astype("float64")) if sparse and k != "data" else v for k, v in content.items()})


@pytest.mark.parametrize("version", ["5", "7.3"])
@pytest.mark.parametrize("dtype", ["uint8", "float64"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_layout_of_the_labels_gives_the_same_data(tmp_path, version, dtype, sparse, transposed):
    if version == "7.3" and sparse and dtype == "uint8":
        pytest.skip("MATLAB's sparse matrices are double or logical")
    content = partial_labels(n=9, num_classes=4)
    plain = Mat(path=tmp_path / "plain.mat")
    savemat(plain.path, content)
    expected = plain.load(tmp_path)
    if transposed:
        content = {key: value if key == "data" else value.T for key, value in content.items()}
    write(tmp_path / "made.mat", content, sparse=sparse, dtype=dtype, version=version)
    data = Mat(path=tmp_path / "made.mat").load(tmp_path)
    assert data.num_classes == 4
    assert data.candidates == expected.candidates
    assert torch.equal(data.y, expected.y)
    assert torch.equal(data.x, expected.x)


def test_as_many_classes_as_examples_are_ambiguous_until_the_layout_is_said(tmp_path):
    content = partial_labels(n=4, num_classes=4)
    savemat(tmp_path / "square.mat", content)
    with pytest.raises(DataError, match="its rows may be classes or examples; say which with --dataset-layout"):
        Mat(path=tmp_path / "square.mat").load(tmp_path)
    by_classes = Mat(path=tmp_path / "square.mat", layout="classes-by-examples").load(tmp_path)
    by_examples = Mat(path=tmp_path / "square.mat", layout="examples-by-classes").load(tmp_path)
    assert by_classes.candidates.to_sets()[0] == [0, 1]
    assert by_examples.candidates.to_sets()[0] == [0, 3]


def test_a_layout_that_the_shape_contradicts_is_refused(tmp_path):
    savemat(tmp_path / "made.mat", partial_labels(n=5, num_classes=3))
    with pytest.raises(DataError, match="is 3×5, but data has 5 rows: it must be 5×K"):
        Mat(path=tmp_path / "made.mat", layout="examples-by-classes").load(tmp_path)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table as small as a test can make it; the real numbers are the next test's."""
    for cls in vars(community).values():
        if isinstance(cls, type) and issubclass(cls, community.CommunityTable) and cls.__dict__.get("examples"):
            for key, value in (("examples", 12), ("features", 2), ("classes", 3), ("mean_size", 2.0)):
                monkeypatch.setattr(cls, key, value)


@pytest.mark.parametrize("spelling", ["as it is", "lower", "letters"])
@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_found_by_its_name_however_its_file_is_spelt(tmp_path, small, name, spelling):
    dataset = create(name)
    stem = Path(dataset.file).stem
    stem = {"as it is": stem, "lower": stem.lower(), "letters": "".join(c for c in stem if c.isalnum())}[spelling]
    folder = tmp_path / ("pll" if spelling == "as it is" else ".")
    folder.mkdir(exist_ok=True)
    savemat(folder / f"{stem}.mat", partial_labels(n=12, num_classes=3))
    data = dataset.load(tmp_path)
    assert data.name == name
    assert (len(data.x), data.num_classes) == (12, 3)


def test_a_table_that_we_never_had_is_read_with_a_warning_where_its_numbers_differ(tmp_path):
    savemat(tmp_path / "FG-NET.mat", partial_labels(n=12, num_classes=3))
    with pytest.warns(UserWarning, match=r"may not be the published table: examples 12 instead of 1002"):
        data = create("fg-net").load(tmp_path)
    assert len(data.x) == 12


@pytest.mark.parametrize(
    ("name", "file"), [("lost", "lost.mat"), ("msrcv2", "MSRCv2.mat"), ("birdsong", "BirdSong.mat")]
)
@pytest.mark.data("pll/lost.mat", "pll/MSRCv2.mat", "pll/BirdSong.mat")
def test_the_real_tables_are_the_published_ones(data_dir, name, file):
    data = create(name).load(data_dir)
    assert data.candidates == Mat(path=Path("pll") / file).load(data_dir).candidates


def test_another_table_under_a_known_name_is_refused_with_what_differs(tmp_path):
    savemat(tmp_path / "lost.mat", partial_labels(n=12, num_classes=3))
    with pytest.raises(
        DataError, match=r"not the published table: examples 12 instead of 1122; features 2 .*mean \|s\|"
    ):
        create("lost").load(tmp_path)


def test_a_table_that_is_not_there_is_named_with_the_address(tmp_path):
    with pytest.raises(DataError, match=r"there is no .*FG-NET\.mat: get it from https://palm\.seu\.edu\.cn/"):
        create("fg-net").load(tmp_path)


def made(y: list[int], sets: list[set[int]], classes: int) -> Data:
    mask = torch.zeros(len(y), classes, dtype=torch.bool)
    for row, members in enumerate(sets):
        mask[row, list(members)] = True
    names = tuple("abcdefgh"[:classes])
    return Data(
        name="made",
        x=torch.arange(len(y)).double().unsqueeze(1),
        y=torch.tensor(y),
        candidates=CandidateSets.from_mask(mask, names),
        num_classes=classes,
        class_names=names,
        ids=tuple(map(str, range(len(y)))),
    )


def test_the_most_frequent_classes_that_cover_a_share_are_kept_with_their_examples():
    y = [2] * 5 + [0] * 3 + [3] * 1 + [1] * 1
    data = made(y, [{label, (label + 1) % 4} for label in y], 4)
    kept = community.most_frequent(data, 0.8)
    assert kept.class_names == ("a", "c")
    assert kept.y.tolist() == [1] * 5 + [0] * 3
    assert kept.ids == tuple(map(str, range(8)))
    assert kept.candidates.to_sets() == [[1]] * 5 + [[0]] * 3
    assert community.most_frequent(data, 0.81).num_classes == 3
    assert community.most_frequent(data, 0.99).num_classes == 4
    with pytest.raises(DataError, match="leaves a single class"):
        community.most_frequent(data, 0.3)


def test_an_example_that_would_lose_all_candidates_is_named():
    data = made([0, 0, 1, 1, 2], [{0}, {2}, {1}, {1}, {2}], 3)
    with pytest.raises(DataError, match="no candidate of example 1 is among the classes"):
        community.most_frequent(data, 0.8)
