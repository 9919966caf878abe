"""CandidateSets: what goes in comes out, whatever the form and the storage; what is wrong is refused at the door."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_toolkit import CandidateSets
from wsl_toolkit.errors import LabelError
from wsl_toolkit.labels import storage

KINDS = ["dense", "packed", "sparse"]


@st.composite
def masks(draw, max_n=12, max_classes=20):
    """Boolean matrices without empty rows; full rows may occur."""
    n, k = draw(st.integers(1, max_n)), draw(st.integers(2, max_classes))
    rows = draw(st.lists(st.integers(1, 2**k - 1), min_size=n, max_size=n))
    return torch.tensor([[bool(code >> j & 1) for j in range(k)] for code in rows])


def stored_as(mask, kind, names=None):
    return CandidateSets(storage.build(mask, kind), mask.shape[1], names)


@given(mask=masks(), kind=st.sampled_from(KINDS))
@settings(max_examples=100, deadline=None)
def test_every_form_and_storage_holds_the_same_sets(mask, kind):
    sets = stored_as(mask, kind)
    k = mask.shape[1]
    names = [f"class {j}" for j in range(k)]
    assert sets.storage == kind
    assert torch.equal(sets.mask(), mask)
    assert torch.equal(sets.sizes, mask.sum(1))
    assert sets == CandidateSets.from_mask(mask)
    assert CandidateSets.from_mask(sets.mask().numpy()) == sets
    assert CandidateSets.from_mask(sets.mask().int().tolist()) == sets
    assert CandidateSets.from_sets(sets.to_sets(), k) == sets
    assert CandidateSets.from_complementary(sets.to_complementary(), k) == sets
    named = sets.named(names)
    again = CandidateSets.from_sets(named.to_names(), class_names=names)
    assert again == named
    assert again.class_names == tuple(names)
    assert pickle.loads(pickle.dumps(sets)) == sets


@given(mask=masks(), kind=st.sampled_from(KINDS))
@settings(max_examples=60, deadline=None)
def test_descriptions_agree_with_the_mask(mask, kind):
    sets = stored_as(mask, kind)
    n, k = mask.shape
    sizes = mask.sum(1)
    assert len(sets) == n
    assert sets.mean_size == pytest.approx(float(sizes.double().mean()))
    assert sets.histogram().tolist() == [int((sizes == size).sum()) for size in range(k + 1)]
    assert torch.equal(sets.class_counts(), mask.sum(0))
    assert torch.equal(sets.cooccurrence(), (mask.double().T @ mask.double()).long())
    assert sets.full_count == int(mask.all(1).sum())
    assert torch.equal(sets.labelled(), (~mask.all(1)).nonzero().flatten())
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    assert torch.equal(sets.take(order).mask(), mask[order])
    assert torch.equal(sets.mask(order), mask[order])
    assert torch.equal(sets.mask(slice(1, None)), mask[1:])
    first = torch.arange(n) == 0
    assert torch.equal(sets.mask(first), mask[:1])
    if sets.full_count == 0:
        assert torch.equal(sets.complement().mask(), ~mask)


@given(mask=masks(), kinds=st.permutations(KINDS))
@settings(max_examples=40, deadline=None)
def test_the_hash_is_of_the_content_and_not_of_the_storage(mask, kinds):
    first, second, third = (stored_as(mask, kind) for kind in kinds)
    assert first.content_hash == second.content_hash == third.content_hash
    changed = mask.clone()
    changed[0, 0] = ~changed[0, 0]
    if changed[0].any():
        assert stored_as(changed, kinds[0]).content_hash != first.content_hash


@given(mask=masks(), kind=st.sampled_from(KINDS), with_names=st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_file_gives_back_the_same_sets(mask, kind, with_names, tmp_path_factory):
    path = tmp_path_factory.mktemp("sets") / "candidates.safetensors"
    names = [f"classe n° {j}" for j in range(mask.shape[1])] if with_names else None
    sets = stored_as(mask, kind, names)
    sets.save(path)
    again = CandidateSets.load(path)
    assert again == sets
    assert again.storage == kind
    assert again.class_names == sets.class_names


def test_sets_do_not_change_when_the_callers_matrix_does():
    mask = torch.tensor([[True, False], [True, True]])
    array = mask.numpy().copy()
    sets, from_array = CandidateSets.from_mask(mask), CandidateSets.from_mask(array)
    digest = sets.content_hash
    mask[0, 1] = True
    array[0, 1] = True
    assert sets.content_hash == from_array.content_hash == digest


def test_scipy_sparse_matrices_are_read_without_becoming_dense():
    from scipy import sparse

    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1]])
    for form in (sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array):
        assert CandidateSets.from_mask(form(mask.numpy().astype(float))) == CandidateSets.from_mask(mask)
    with pytest.raises(LabelError, match=r"holds 2\.0 at row 1, class 3"):
        CandidateSets.from_mask(sparse.csr_matrix(np.array([[1.0, 0, 0, 0], [0, 0, 0, 2]])))


def test_complementary_labels_may_be_one_each_or_several_or_none():
    one = CandidateSets.from_complementary(torch.tensor([0, 2]), 3)
    assert one.to_sets() == [[1, 2], [0, 1]]
    assert CandidateSets.from_complementary(np.array([0, 2]), 3) == one
    several = CandidateSets.from_complementary([[0, 1], [], (2,)], 3)
    assert several.to_sets() == [[2], [0, 1, 2], [0, 1]]
    assert several.full_count == 1
    named = CandidateSets.from_complementary(["cat", ["dog", "cow"]], class_names=["cat", "dog", "cow"])
    assert named.to_names() == [["dog", "cow"], ["cat"]]


def test_ordinary_labels_are_sets_of_one():
    sets = CandidateSets.from_labels(torch.tensor([2, 0]), 3)
    assert sets.to_sets() == [[2], [0]]
    assert sets.mean_size == 1


def test_ambiguity_degree_is_the_likeliest_wrong_label_of_any_class():
    sets = CandidateSets.from_sets([[0, 1], [0, 2], [0, 1], [1], [1], [1, 2]], 3)
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    assert sets.ambiguity_degree(labels) == pytest.approx(2 / 3)
    assert sets.given_label(labels).tolist() == [
        [1, pytest.approx(2 / 3), pytest.approx(1 / 3)],
        [0, 1, pytest.approx(1 / 3)],
        [0, 0, 0],
    ]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1, 0], [0, 0], [0, 0]], r"candidate set of example 1 is empty \(2 of 3 are\)"),
        ([[1, 2], [0, 1]], "holds 2 at row 0, class 1: only 0 and 1"),
        ([[1.0, 0.5]], r"holds 0\.5 at row 0, class 1"),
        ([[1.0, float("nan")]], "holds nan at row 0, class 1"),
        ([[-1, 1]], "holds -1 at row 0, class 0"),
        ([1, 0, 1], "2 dimensions"),
        ([[[1]]], "2 dimensions"),
        ([[1], [1]], "at least 2 classes"),
        (np.zeros((0, 3)), "there are no candidate sets"),
        ([[1, 0], [1]], "as many columns in every row"),
        ([["a", "b"]], "must hold numbers"),
        (None, "must hold numbers|2 dimensions"),
    ],
)
def test_a_wrong_matrix_is_refused_with_the_place(matrix, message):
    with pytest.raises(LabelError, match=message):
        CandidateSets.from_mask(matrix)


@pytest.mark.parametrize(
    ("sets", "kwargs", "message"),
    [
        ([[0], []], {"num_classes": 3}, "example 1 is empty"),
        ([[0], [3]], {"num_classes": 3}, "example 1 names class 3, out of range 0 to 2"),
        ([[-1]], {"num_classes": 3}, "example 0 names class -1"),
        ([[0.5]], {"num_classes": 3}, "classes are whole numbers"),
        ([[None]], {"num_classes": 3}, "which is no class"),
        ([[float("inf")]], {"num_classes": 3}, "which is no class"),
        ([["cat"]], {"num_classes": 3}, "as none were given"),
        ([["cta"]], {"class_names": ["cat", "dog"]}, "'cta', which is not among the 2 class names. Did you mean 'cat'"),
        (["cat"], {"class_names": ["cat", "dog"]}, r"example 0 is 'cat', not a collection of classes; write \['cat'\]"),
        ([3], {"num_classes": 4}, "example 0 is 3, not a collection"),
        ([[0]], {"class_names": ["cat", "cat"]}, "class name 'cat' is used twice"),
        ([[0]], {"num_classes": 3, "class_names": ["cat", "dog"]}, "2 class names were given for 3 classes"),
        ([[0], [0]], {}, "at least 2 classes to choose from, not 1"),
        ([], {"num_classes": 3}, "there are no candidate sets"),
    ],
)
def test_wrong_sets_are_refused_with_the_example(sets, kwargs, message):
    with pytest.raises(LabelError, match=message):
        CandidateSets.from_sets(sets, **kwargs)


def test_wrong_complementary_labels_are_refused():
    with pytest.raises(LabelError, match="need num_classes or class_names"):
        CandidateSets.from_complementary([0])
    with pytest.raises(LabelError, match="complementary labels: example 1 names class 5"):
        CandidateSets.from_complementary([0, 5], 3)
    with pytest.raises(LabelError, match="example 0 is empty"):
        CandidateSets.from_complementary([[0, 1, 2]], 3)
    with pytest.raises(LabelError, match="example 1 has all 3 classes"):
        CandidateSets.from_mask([[1, 0, 0], [1, 1, 1]]).complement()


def test_wrong_labels_are_refused():
    with pytest.raises(LabelError, match="label 3 of example 1 is out of range 0 to 2"):
        CandidateSets.from_labels(torch.tensor([0, 3]), 3)
    with pytest.raises(LabelError, match="vector of integers"):
        CandidateSets.from_labels(torch.tensor([0.0]), 3)
    sets = CandidateSets.from_labels(torch.tensor([0, 1]), 3)
    with pytest.raises(LabelError, match="1 labels for 2 examples"):
        sets.ambiguity_degree(torch.tensor([0]))
    with pytest.raises(LabelError, match="no class names"):
        sets.to_names()


def test_equality_is_by_content_and_names():
    sets = CandidateSets.from_sets([[0, 1], [2]], 3)
    assert sets == CandidateSets.from_sets([[1, 0, 1], [2]], 3)
    assert sets != CandidateSets.from_sets([[0, 1], [2]], 4)
    assert sets != sets.named(["a", "b", "c"])
    assert sets != "sets"
    with pytest.raises(TypeError):
        hash(sets)
    assert repr(sets) == "CandidateSets(n=2, classes=3, mean size=1.50, storage=dense)"


def test_printed_they_are_the_facts_and_the_first_sets():
    few = CandidateSets.from_sets([[0, 1], [2]], 3, ["cat", "dog", "goose"])
    assert str(few) == "2 candidate sets of 3 classes, mean size 1.50:\n  {cat, dog}\n  {goose}"
    many = CandidateSets.from_mask(torch.ones(7_000, 12, dtype=torch.bool))
    lines = str(many).splitlines()
    assert lines[0] == "7,000 candidate sets of 12 classes, mean size 12.00:"
    assert lines[1] == "  {0, 1, 2, 3, 4, 5, 6, 7, … 4 more}"
    assert lines[6:] == ["  … and 6,995 more"]
