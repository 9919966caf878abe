"""Storage: dense for small problems, compact for large ones; passes over chunks; files that cannot lie."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load, save

from wsl_toolkit import CandidateSets
from wsl_toolkit.errors import LabelError
from wsl_toolkit.labels import candidate_sets, storage


def ten_candidates(n, num_classes):
    """n sets of ten, evenly spread, as a sparse store."""
    spacing = num_classes // 10
    classes = (torch.arange(n).unsqueeze(1) % spacing + spacing * torch.arange(10)).flatten()
    return storage.SparseStore(torch.arange(n + 1) * 10, classes.to(storage.index_dtype(num_classes)), num_classes)


def test_a_million_examples_of_a_thousand_classes_take_well_under_200_megabytes():
    n, k = 1_000_000, 1000
    sets = CandidateSets(ten_candidates(n, k), k)
    assert storage.choose_kind(n, k, 10 * n) == sets.storage == "sparse"
    assert sets.nbytes + sets.sizes.nbytes < 40_000_000
    assert sets.mean_size == 10
    index = torch.tensor([0, 999_999, 17])
    assert torch.equal(sets.mask(index).sum(1), torch.tensor([10, 10, 10]))
    assert sets.take(index).to_sets()[1] == [99 + 100 * j for j in range(10)]


def test_complementary_labels_of_a_million_examples_take_a_bit_a_cell():
    n, k = 1_000_000, 1000
    assert storage.choose_kind(n, k, 999 * n) == "packed"
    assert n * ((k + 7) // 8) == 125_000_000


def test_small_problems_are_dense():
    assert storage.choose_kind(60_000, 10, 300_000) == "dense"
    assert storage.choose_kind(60_000, 1000, 600_000) == "dense"
    assert storage.choose_kind(100_000, 1000, 1_000_000) == "sparse"


@pytest.mark.parametrize("kind", ["dense", "packed", "sparse"])
def test_passes_over_chunks_see_every_example_once(monkeypatch, kind):
    monkeypatch.setattr(candidate_sets, "CHUNK_CELLS", 37)
    rng = torch.Generator().manual_seed(0)
    mask = torch.rand(23, 9, generator=rng) < 0.4
    mask[:, 3] = True
    sets = CandidateSets(storage.build(mask, kind), 9)
    assert torch.equal(sets.class_counts(), mask.sum(0))
    assert sets.to_sets() == [row.nonzero().flatten().tolist() for row in mask]
    assert sets.to_complementary() == [(~row).nonzero().flatten().tolist() for row in mask]
    assert torch.equal(sets.complement().mask(), ~mask)
    assert torch.equal(sets.take(torch.arange(22, -1, -1)).mask(), mask.flip(0))
    y = torch.full((23,), 3)
    assert sets.ambiguity_degree(y) == pytest.approx(float(mask.double().mean(0)[[0, 1, 2, 4, 5, 6, 7, 8]].max()))
    assert sets == CandidateSets.from_mask(mask)
    assert CandidateSets.from_complementary(sets.to_complementary(), 9) == sets
    assert CandidateSets.from_sets(sets.to_sets(), 9) == sets


@pytest.mark.parametrize("kind", ["packed", "sparse"])
def test_chunks_are_joined_in_order(monkeypatch, kind):
    monkeypatch.setattr(storage, "DENSE_LIMIT", 0)
    mask = torch.zeros(30, 200, dtype=torch.bool)
    mask[torch.arange(30), torch.arange(30)] = True
    mask = mask if kind == "sparse" else ~mask
    sets = CandidateSets.from_chunks(mask.split(7), 30, 200)
    assert sets.storage == kind
    assert torch.equal(sets.mask(), mask)


def test_complements_choose_their_storage_by_their_own_size(monkeypatch):
    monkeypatch.setattr(storage, "DENSE_LIMIT", 0)
    sets = CandidateSets(ten_candidates(50, 1000), 1000)
    assert sets.complement().storage == "packed"
    assert sets.complement().complement().storage == "sparse"
    assert CandidateSets.from_complementary(sets.to_sets(), 1000).storage == "packed"


def test_sizes_are_counted_in_bits():
    mask = torch.rand(200, 1003, generator=torch.Generator().manual_seed(0)) < 0.7
    store = storage.PackedStore.from_mask(mask)
    assert torch.equal(store.sizes(), mask.sum(1))
    assert torch.equal(store.rows(torch.tensor([5, 199])), mask[[5, 199]])


def test_more_than_32767_classes_fit():
    sets = CandidateSets.from_sets([[0, 40_000], [39_999]], 40_001)
    assert sets.to_sets() == [[0, 40_000], [39_999]]
    assert storage.SparseStore.from_mask(sets.mask()).rows(slice(None)).sum() == 3


def saved(tmp_path, kind):
    mask = torch.tensor([[True, False, True], [False, True, False]])
    path = tmp_path / "sets.safetensors"
    CandidateSets(storage.build(mask, kind), 3).save(path)
    return path


def rewrite(path, change_tensors=None, **change_meta):
    """Change a file as somebody might who knows the format."""
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    tensors = load(data)
    if change_tensors:
        change_tensors(tensors)
    path.write_bytes(save(tensors, metadata={**header["__metadata__"], **change_meta}))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("dense", lambda t: t["mask"].__setitem__((0, 1), True), "altered"),
        ("dense", lambda t: t.pop("mask"), "broken"),
        ("packed", lambda t: t["bits"].__setitem__((0, 0), 255), "beyond the last class"),
        ("sparse", lambda t: t["classes"].__setitem__(0, 9), "out of range"),
        ("sparse", lambda t: t["classes"].__setitem__(1, 0), "not in order"),
        ("sparse", lambda t: t["offsets"].__setitem__(2, 9), "do not follow each other"),
        ("sparse", lambda t: t["offsets"].__setitem__(1, 5), "do not follow each other"),
    ],
)
def test_altered_files_are_refused(tmp_path, kind, change, message):
    path = saved(tmp_path, kind)
    rewrite(path, change)
    with pytest.raises(LabelError, match=message):
        CandidateSets.load(path)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"kind": "pickled"}, "no storage 'pickled'"),
        ({"num_classes": "many"}, "broken"),
        ({"format": "something else"}, "not one of candidate sets"),
        ({"content_hash": "0"}, "altered"),
        ({"class_names": '["a", "b"]'}, "2 class names were given for 3"),
    ],
)
def test_altered_descriptions_are_refused(tmp_path, meta, message):
    path = saved(tmp_path, "dense")
    rewrite(path, **meta)
    with pytest.raises(LabelError, match=message):
        CandidateSets.load(path)


def test_truncated_missing_and_foreign_files_are_refused(tmp_path):
    path = saved(tmp_path, "dense")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(LabelError, match="not a readable file of candidate sets"):
        CandidateSets.load(path)
    path.write_bytes(b"")
    with pytest.raises(LabelError, match="not a readable file"):
        CandidateSets.load(path)
    with pytest.raises(LabelError, match="no candidate sets at"):
        CandidateSets.load(tmp_path / "nowhere.safetensors")
    with pytest.raises(LabelError, match="not a readable file"):
        CandidateSets.load(tmp_path)


def test_saving_leaves_no_temporary_file_and_replaces_the_old_one(tmp_path):
    path = saved(tmp_path, "dense")
    CandidateSets.from_sets([[1]], 3).save(path)
    assert CandidateSets.load(path).to_sets() == [[1]]
    assert [p.name for p in tmp_path.iterdir()] == ["sets.safetensors"]


@pytest.mark.parametrize("kind", ["dense", "packed", "sparse"])
def test_masks_in_pieces_are_stored_as_the_whole_mask_is(kind: str) -> None:
    mask = torch.rand(30, 11, generator=torch.Generator().manual_seed(3)) < 0.5

    collected = storage.collect(iter(mask.split(7)), kind, 30, 11)

    whole = storage.build(mask, kind)
    assert collected.kind == kind
    for name, tensor in whole.tensors().items():
        assert torch.equal(collected.tensors()[name], tensor)


@pytest.mark.parametrize("rows", [5, 7])
def test_a_number_of_rows_that_was_not_announced_is_refused(rows: int) -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"sets came|size"):
        storage.collect(iter(torch.ones(rows, 3, dtype=torch.bool).split(2)), "dense", 6, 3)
