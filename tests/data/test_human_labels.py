"""Sets of labels from people: files made exactly as the published ones are, read in every variant."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_files import make_cifar
from torchvision import datasets as tv

from wsl_builtins import superclasses
from wsl_builtins.datasets import human
from wsl_toolkit.errors import DataError
from wsl_toolkit.plugins.loading import load_plugins

VOTES = {
    0: [[0, 1], [0], [0, 2, 3], [1, 0, 4]],
    1: [[1], [1], [5]],
    2: [[2], [3]],
    3: [],
}


@pytest.fixture
def cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_cifar(tmp_path, tv.CIFAR10, monkeypatch, classes=10)
    return tmp_path


@pytest.fixture
def plcifar(cifar10: Path) -> Path:
    (cifar10 / "plcifar10").mkdir()
    (cifar10 / "plcifar10" / "plcifar10.pkl").write_bytes(pickle.dumps(VOTES))
    return cifar10


def create(name: str, **values: Any) -> Any:
    return load_plugins().registry.create("dataset", name, values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [{0, 1, 2, 3, 4}, {1, 5}, {2, 3}]),
        ({"variant": "vaguest"}, [{0, 2, 3}, {1}, {2}]),
        ({"variant": "vote"}, [{0}, {1}, {2, 3}]),
        ({"variant": "annotator", "annotator": 1}, [{0}, {1}, {3}]),
        ({"variant": "annotator", "annotator": 2}, [{0, 2, 3}, {5}, set(range(10))]),
    ],
)
def test_plcifar10_is_combined_as_its_variants_say(plcifar, values, expected):
    data = create("plcifar10", **values).load(plcifar)
    assert data.candidates is not None
    assert data.candidates.to_sets()[:3] == [sorted(s) for s in expected]
    assert data.candidates.to_sets()[3] == list(range(10)), "an image without a set is unlabelled"
    assert [one.name for one in data.annotators] == [f"annotator {k}" for k in range(4)]
    for place, one in enumerate(data.annotators):
        said = {image: sets[place] for image, sets in VOTES.items() if place < len(sets)}
        assert one.answered.nonzero().flatten().tolist() == sorted(said)
        assert {image: set(one.sets.to_sets()[image]) for image in said} == {i: set(s) for i, s in said.items()}
    assert data.y is not None
    assert data.y[:10].tolist() == list(range(10))
    assert data.test_x is not None
    assert data.x.dtype == torch.uint8
    assert data.name == "plcifar10"


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ({60_000: [[1]]}, "speaks of image 60000"),
        ({0: [[11]]}, r"image 0 has the labels \[11\], of 0 to 9 only"),
        ({0: [1, 2]}, "a set of image 0 is not a list of whole numbers"),
        ({0: [["cat"]]}, "a set of image 0 is not a list of whole numbers"),
        ({0: [[2**70], [1], [1]]}, "a set of image 0 is not a list of whole numbers up to 1,000,000"),
        ({"0": [[1]]}, "must be an image's number"),
        ([[1]], "holds no dict"),
    ],
)
def test_plcifar10_of_another_form_is_refused(plcifar, votes, message):
    (plcifar / "plcifar10" / "plcifar10.pkl").write_bytes(pickle.dumps(votes))
    with pytest.raises(DataError, match=message):
        create("plcifar10").load(plcifar)


def complementary(path: Path, n: int, side: int, classes: int, *, as_lists: bool) -> dict[str, Any]:
    """A pickle with names, images, ord_labels and cl_labels, three labels an image."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    excluded = rng.integers(0, classes, (n, 3))
    excluded[0] = [1, 1, 2]
    content = {
        "names": [f"{i}.png" for i in range(n)],
        "images": list(images) if as_lists else images,
        "ord_labels": [int(i % classes) for i in range(n)],
        "cl_labels": excluded.tolist() if as_lists else excluded,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))
    return {"images": images, "excluded": excluded}


CIFAR_SETS = ["clcifar10", "clcifar20", "acl-cifar10", "acl-cifar20"]
MICRO_SETS = ["cl-micro-imagenet10", "cl-micro-imagenet20", "acl-micro-imagenet10", "acl-micro-imagenet20"]


@pytest.mark.parametrize("as_lists", [False, True])
@pytest.mark.parametrize("name", CIFAR_SETS + MICRO_SETS)
def test_complementary_labels_of_people_and_models_are_what_is_left_out_of_the_sets(
    tmp_path, monkeypatch, name, as_lists
):
    dataset = create(name)
    made = complementary(tmp_path / dataset.file, 30, dataset.side, dataset.classes, as_lists=as_lists)
    if name in CIFAR_SETS:
        source = tv.CIFAR10 if dataset.classes == 10 else tv.CIFAR100
        make_cifar(tmp_path, source, monkeypatch, classes=10 if dataset.classes == 10 else 100)
    else:
        complementary(tmp_path / dataset.test_file, 12, 64, dataset.classes, as_lists=as_lists)
    data = dataset.load(tmp_path)
    assert data.num_classes == dataset.classes
    assert torch.equal(data.x, torch.from_numpy(made["images"]).permute(0, 3, 1, 2))
    outside = ~data.candidates.mask()
    assert all(set(outside[i].nonzero().flatten().tolist()) == set(made["excluded"][i].tolist()) for i in range(30))
    first = create(name, labels=(1,)).load(tmp_path)
    assert bool((first.candidates.sizes == dataset.classes - 1).all())
    vote = create(name, combine="vote").load(tmp_path)
    assert (~vote.candidates.mask())[0].nonzero().flatten().tolist() == [1]
    assert data.test_x is not None
    assert int(data.test_y.max()) < dataset.classes


def test_the_twenty_classes_of_clcifar20_are_the_superclasses(tmp_path, monkeypatch):
    dataset = create("clcifar20")
    complementary(tmp_path / dataset.file, 20, 32, 20, as_lists=False)
    make_cifar(tmp_path, tv.CIFAR100, monkeypatch, classes=100)
    data = dataset.load(tmp_path)
    for fine, coarse in enumerate(data.test_y[:100].tolist()):
        assert fine in superclasses.CIFAR100[coarse]


def test_a_missing_file_is_named_with_the_address_to_get_it_from(tmp_path):
    with pytest.raises(DataError, match=r"no .*plcifar10\.pkl: get it from https://github\.com/wwangwitsel/PLCIFAR10"):
        create("plcifar10").load(tmp_path)
    for name in CIFAR_SETS + MICRO_SETS:
        with pytest.raises(DataError, match=r"get it from https://(github|drive\.google)\.com/"):
            create(name).load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((30, 32, 32), dtype=np.uint8)}, "images must be bytes of n×32×32×3"),
        ({"images": np.zeros((30, 32, 32, 3))}, "images must be bytes"),
        ({"ord_labels": [1, 2]}, "ord_labels must be 30 whole numbers"),
        ({"cl_labels": [[1, 2, 3]] * 29}, "cl_labels must be 30 lists"),
        ({"cl_labels": [[1, 2, 3]] * 29 + [[1]]}, "the same number of labels"),
        ({"cl_labels": [[1, 2, 30]] * 30}, "of 0 to 9 only"),
        ({"cl_labels": [[1]] * 30}, "there is no label 3"),
        ({"cl_labels": [[1.5, 2.0, 3.0]] * 30}, "cl_labels must be whole numbers"),
        ({"cl_labels": [[1, 2, [3, 4]]] * 30}, "cl_labels must be whole numbers"),
        ({"ord_labels": [[1], [2, 3]] * 15}, "ord_labels must be 30 whole numbers"),
    ],
)
def test_complementary_labels_of_another_form_are_refused(cifar10, change, message):
    path = cifar10 / human.ClCifar10.file
    complementary(path, 30, 32, 10, as_lists=False)
    path.write_bytes(pickle.dumps({**pickle.loads(path.read_bytes()), **change}))
    with pytest.raises(DataError, match=message):
        create("clcifar10").load(cifar10)


def test_a_file_without_labels_says_what_is_missing(cifar10):
    path = cifar10 / human.ClCifar10.file
    path.parent.mkdir()
    path.write_bytes(pickle.dumps({"images": np.zeros((1, 32, 32, 3), dtype=np.uint8)}))
    with pytest.raises(DataError, match="holds no ord_labels, cl_labels"):
        create("clcifar10").load(cifar10)
