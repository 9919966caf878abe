"""Data, its splits and its scaling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler
from torch import nn

from wsl_toolkit.data import dataset as data_module
from wsl_toolkit.data.dataset import Data, Scaler, as_float, split, transform_inputs
from wsl_toolkit.errors import DataError, LabelError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins


def labelled(y: list[int], num_classes: int, **more: object) -> Data:
    return Data(
        name="made",
        x=torch.arange(len(y), dtype=torch.float32).unsqueeze(1),
        y=torch.tensor(y),
        num_classes=num_classes,
        **more,  # type: ignore[arg-type]
    )


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


labels = st.integers(2, 6).flatmap(lambda k: st.tuples(st.just(k), st.lists(st.integers(0, k - 1), min_size=12)))


@settings(deadline=None, max_examples=200)
@given(labels, st.floats(0, 0.9), st.floats(0.1, 0.8), st.integers(0, 2**31))
def test_a_split_uses_every_example_exactly_once(case, validation, test, seed):
    num_classes, y = case
    data = labelled(y, num_classes)
    try:
        parts = split(data, validation, test, rng(seed))
    except DataError:
        kept = len(y) - round(test * len(y))
        assert kept == round(validation * kept)
        return
    assert parts.test is not None
    everything = torch.cat([parts.train, parts.validation, parts.test])
    assert everything.sort().values.tolist() == list(range(len(y)))
    for part in (parts.train, parts.validation, parts.test):
        assert part.tolist() == sorted(part.tolist())


@settings(deadline=None, max_examples=200)
@given(labels, st.floats(0.1, 0.8), st.integers(0, 2**31))
def test_a_split_takes_its_share_of_every_class_to_within_one_example(case, test, seed):
    num_classes, y = case
    parts = split(labelled(y, num_classes), 0.0, test, rng(seed))
    assert parts.test is not None
    assert len(parts.test) == round(test * len(y))
    counts = torch.bincount(torch.tensor(y), minlength=num_classes)
    taken = torch.bincount(torch.tensor(y)[parts.test], minlength=num_classes)
    assert bool(((taken - counts * test).abs() < 1 + 1e-6).all())


def test_a_split_depends_on_its_stream_alone():
    data = labelled([0, 1, 2] * 40, 3)
    first, again, other = (split(data, 0.1, 0.2, rng(seed)) for seed in (5, 5, 6))
    assert torch.equal(first.train, again.train)
    assert torch.equal(first.test, again.test)
    assert not torch.equal(first.test, other.test)


def test_every_example_is_as_likely_as_its_classmates_to_be_tested():
    data = labelled([0] * 10 + [1] * 5, 2)
    stream = rng()
    times = torch.zeros(15)
    for _ in range(3000):
        times[split(data, 0.0, 0.2, stream).test] += 1
    share = times / 3000
    assert bool(((share - 0.2).abs() < 0.04).all()), share  # 5 standard deviations


def test_many_tiny_classes_still_give_a_test_part_of_the_asked_size():
    # Rounding each class alone would take 0 of 2 everywhere.
    parts = split(labelled([c for c in range(20) for _ in range(2)], 20), 0.0, 0.2, rng())
    assert parts.test is not None
    assert len(parts.test) == 8


def test_which_of_equal_classes_gives_the_odd_example_is_random():
    data = labelled([c for c in range(20) for _ in range(2)], 20)
    stream = rng()
    taken = torch.zeros(20)
    for _ in range(200):
        taken += torch.bincount(data.y[split(data, 0.0, 0.2, stream).test], minlength=20)
    assert taken.min() > 0.4 * 80
    assert taken.max() < 1.6 * 80


def test_official_test_parts_are_left_whole():
    data = labelled([0, 1] * 10, 2, test_x=torch.zeros(3, 1), test_y=torch.zeros(3, dtype=torch.long))
    parts = split(data, 0.1, 0.5, rng())
    assert parts.test is None
    assert len(parts.train) == 18
    assert len(parts.validation) == 2


def test_data_without_true_labels_is_split_without_strata():
    data = Data(name="made", x=torch.zeros(20, 2), candidates=CandidateSets.from_sets([[0, 1]] * 20, 3), num_classes=3)
    parts = split(data, 0.5, 0.5, rng())
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (5, 5, 10)


@pytest.mark.parametrize("complete", [True, False])
def test_true_labels_beside_candidate_sets_do_not_move_the_parts(complete):
    labels = torch.tensor([0] * 10 + [1] * 10 + ([2] * 20 if complete else [-1] * 20))
    parts = []
    for order in (torch.arange(40), torch.randperm(40, generator=rng())):
        data = Data(
            name="made",
            x=torch.zeros(40, 2),
            candidates=CandidateSets.from_sets([[0, 1]] * 40, 3),
            num_classes=3,
            **{"y" if complete else "known_y": labels[order]},
        )
        parts.append(split(data, 0.2, 0.5, rng()))
    for name in ("train", "validation", "test"):
        assert torch.equal(getattr(parts[0], name), getattr(parts[1], name))


def test_too_few_examples_for_the_parts_are_refused():
    with pytest.raises(DataError, match="too few to hold out"):
        split(labelled([0, 1], 2), 0.0, 0.1, rng())
    with pytest.raises(DataError, match="nothing is left to train on"):
        split(labelled([0, 1, 0], 2), 0.9, 0.4, rng())


# ------------------------------------------------------------------- scaling


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("how", ["per-feature", "per-channel"])
def test_training_inputs_get_mean_zero_and_deviation_one(dtype, how):
    x = (torch.rand(50, 3, 4, 4, generator=rng(), dtype=torch.float64) * 200 + 20).to(dtype)
    out = Scaler.fit(x, how)(x)
    assert out.dtype == torch.float32
    dims = [0] if how == "per-feature" else [0, 2, 3]
    torch.testing.assert_close(out.mean(dims), torch.zeros_like(out.mean(dims)), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std(dims, correction=0), torch.ones_like(out.mean(dims)), atol=1e-5, rtol=0)


def test_statistics_come_from_the_training_part_only():
    data = labelled([0, 1] * 10, 2)
    train = torch.arange(10)
    scaler = data.fit_inputs(train)
    assert float(scaler.shift) == pytest.approx(4.5)
    assert float(scaler.spread) == pytest.approx(float(data.x[:10].std(correction=0)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(50, 7), (50, 3, 4, 4)])
def test_min_max_takes_each_feature_of_the_training_part_from_zero_to_one(dtype, shape):
    x = (torch.rand(shape, generator=rng(), dtype=torch.float64) * 200 + 20).to(dtype)
    data = Data(name="t", x=x, y=torch.arange(50) % 2, num_classes=2, normalise="min-max")
    train = torch.arange(30)
    out = data.fit_inputs(train)(x)
    assert out.dtype == torch.float32
    expected = MinMaxScaler().fit(x[train].flatten(1).numpy()).transform(x.flatten(1).numpy())
    torch.testing.assert_close(out.flatten(1).double(), torch.from_numpy(expected).double(), atol=1e-6, rtol=1e-6)


def test_a_range_that_a_number_cannot_hold_is_named():
    x = torch.tensor([[0.0, -3e38], [1.0, 3e38]])
    with pytest.raises(DataError, match="feature 1 has values too far apart"):
        Scaler.fit(x, "min-max")
    assert torch.equal(Scaler.fit(x.double(), "min-max")(x.double()), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6, -3e-5])
@pytest.mark.parametrize("how", ["per-feature", "per-channel", "min-max"])
def test_a_constant_feature_becomes_zero_not_noise(how, value):
    x = torch.full((1000, 2), value)
    assert Scaler.fit(x, how)(x).abs().max() <= 1e-6 * max(1, abs(value))


def test_bytes_unscaled_are_between_zero_and_one():
    x = torch.tensor([[0, 255], [51, 102]], dtype=torch.uint8)
    torch.testing.assert_close(Scaler.fit(x, "none")(x), torch.tensor([[0, 1], [0.2, 0.4]]))
    assert as_float(x).dtype == torch.float32


def test_statistics_and_transformation_do_not_depend_on_the_chunk(monkeypatch):
    x = torch.randint(0, 256, (97, 3, 5, 5), generator=rng(), dtype=torch.uint8)
    flat = x.flatten(1).double()
    whole = [Scaler.fit(x, "per-channel"), Scaler.fit(flat, "per-feature")]
    inputs = transform_inputs(whole[0], x)
    monkeypatch.setattr(data_module, "CHUNK_CELLS", 300)
    parts = [Scaler.fit(x, "per-channel"), Scaler.fit(flat, "per-feature")]
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a.shift, b.shift)
        torch.testing.assert_close(a.spread, b.spread)
    assert torch.equal(transform_inputs(whole[0], x), inputs)
    index = torch.tensor([96, 0, 5])
    assert torch.equal(transform_inputs(whole[0], x, index), inputs[index])
    assert transform_inputs(whole[0], x, index[:0]).shape == (0, 3, 5, 5)


def test_a_scaler_leaves_its_inputs_alone():
    x = torch.rand(10, 2, generator=rng())
    before = x.clone()
    Scaler.fit(x, "per-feature")(x)
    assert torch.equal(x, before)


def test_a_scaler_travels_with_its_model_in_state_and_export():
    x = torch.rand(10, 4, generator=rng())
    model = nn.Sequential(Scaler.fit(x, "per-feature"), nn.Linear(4, 2)).eval()
    other = nn.Sequential(Scaler(torch.zeros(4), torch.ones(4)), nn.Linear(4, 2))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(exported.module()(x[:3]), model(x[:3]))


# ----------------------------------------------------------------- the door


def test_values_that_are_not_numbers_are_named_by_example_and_feature():
    x = torch.zeros(5, 3)
    x[3, 1] = float("nan")
    with pytest.raises(DataError, match="example 3 has nan at feature 1"):
        Data(name="made", x=x, y=torch.zeros(5, dtype=torch.long), num_classes=2)
    with pytest.raises(DataError, match="test example 3 has nan at feature 1"):
        Data(name="made", x=torch.zeros(5, 3), y=torch.zeros(5, dtype=torch.long), num_classes=2, test_x=x)
    images = torch.zeros(2, 1, 2, 2)
    images[1, 0, 1, 0] = float("inf")
    with pytest.raises(DataError, match=r"example 1 has inf at position \(0, 1, 0\)"):
        Data(name="made", x=images, y=torch.zeros(2, dtype=torch.long), num_classes=2)


def test_broken_data_is_refused_with_the_reason():
    y = torch.zeros(4, dtype=torch.long)
    sets = CandidateSets.from_sets([[0, 1]] * 4, 3)
    with pytest.raises(DataError, match="there are no examples"):
        Data(name="made", x=torch.zeros(0, 3), y=y[:0], num_classes=2)
    with pytest.raises(DataError, match="neither true labels nor candidate sets"):
        Data(name="made", x=torch.zeros(4, 3), num_classes=2)
    with pytest.raises(LabelError, match="4 labels for 5 examples"):
        Data(name="made", x=torch.zeros(5, 3), y=y, num_classes=2)
    with pytest.raises(DataError, match="4 candidate sets for 5 examples"):
        Data(name="made", x=torch.zeros(5, 3), candidates=sets, num_classes=3)
    with pytest.raises(DataError, match="over 3 classes for 4 classes"):
        Data(name="made", x=torch.zeros(4, 3), candidates=sets, num_classes=4)
    with pytest.raises(DataError, match=r"test examples have shape \(2,\), training examples \(3,\)"):
        Data(name="made", x=torch.zeros(4, 3), y=y, num_classes=2, test_x=torch.zeros(4, 2))
    with pytest.raises(DataError, match="examples 1 and 3 have the same id 'b'"):
        Data(name="made", x=torch.zeros(4, 3), y=y, num_classes=2, ids=("a", "b", "c", "b"))
    with pytest.raises(DataError, match="3 ids for 4 examples"):
        Data(name="made", x=torch.zeros(4, 3), y=y, num_classes=2, ids=("a", "b", "c"))
    with pytest.raises(LabelError, match="out of range"):
        Data(name="made", x=torch.zeros(4, 3), candidates=sets, num_classes=3, known_y=torch.tensor([-1, 0, 3, 1]))


def test_the_digest_changes_with_every_part_of_the_data():
    def make(**more: object) -> str:
        base: dict[str, object] = {
            "name": "made",
            "x": torch.zeros(4, 2),
            "y": torch.tensor([0, 1, 0, 1]),
            "candidates": CandidateSets.from_sets([[0, 1]] * 4, 3),
            "num_classes": 3,
        }
        return Data(**{**base, **more}).digest()  # type: ignore[arg-type]

    digests = {
        make(),
        make(x=torch.ones(4, 2)),
        make(y=torch.tensor([0, 1, 0, 2])),
        make(candidates=CandidateSets.from_sets([[0, 2]] * 4, 3)),
        make(normalise="none"),
        make(test_x=torch.zeros(1, 2), test_y=torch.tensor([0])),
        make(y=None, known_y=torch.tensor([0, 1, 0, -1])),
    }
    assert len(digests) == 7
    assert make() == make()


def test_printed_it_is_one_line_of_facts():
    x = torch.zeros(4, 1, 28, 28, dtype=torch.uint8)
    sets = CandidateSets.from_sets([[0, 1], [1], [2], [0, 2]], 3)
    whole = Data(name="made", x=x, y=torch.tensor([0, 1, 2, 0]), num_classes=3, candidates=sets, test_x=x[:2])
    assert repr(whole) == (
        "Data(made: 4 examples of 1×28×28 uint8, 3 classes, true labels, candidate sets of mean size 1.50, "
        "test part of 2)"
    )
    partly = Data(name="made", x=x, known_y=torch.tensor([0, -1, 2, -1]), num_classes=3, candidates=sets)
    assert "2 true labels" in str(partly)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": torch.zeros(6, 2, dtype=torch.int64)}, "inputs are torch.int64; they must be one of uint8, float32"),
        ({"x": torch.zeros(6, 2, dtype=torch.float16)}, "inputs are torch.float16"),
        ({"x": torch.zeros(6)}, "inputs have shape"),
        ({"x": [[0.0, 0.0]] * 6}, "x must be a torch tensor, not list"),
        ({"y": [0, 1, 2, 0, 1, 2]}, "y must be a torch tensor, not list"),
        ({"candidates": torch.ones(6, 3).bool()}, "candidates must be CandidateSets, not Tensor"),
        ({"num_classes": 3.0}, "num_classes must be a whole number, not 3.0"),
        ({"class_names": ("a", "b")}, "2 class names for 3 classes"),
        ({"test_y": torch.zeros(2).long()}, "test labels without test inputs"),
        ({"test_x": torch.zeros(2, 2).long(), "test_y": torch.zeros(2).long()}, "test inputs are torch.int64"),
    ],
)
def test_data_of_the_wrong_kind_is_refused_when_it_is_made(changes: dict, words: str) -> None:
    parts = {"name": "made", "x": torch.zeros(6, 2), "y": torch.arange(6) % 3, "num_classes": 3, **changes}
    with pytest.raises(DataError, match=re.escape(words)):
        Data(**parts)


def test_the_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    theirs, ours = load_digits(), load_plugins().registry.create("dataset", "digits", {}).load(Path())
    assert torch.equal(ours.x[:, 0], torch.from_numpy(theirs.images).float() / 16)
    assert torch.equal(ours.y, torch.from_numpy(theirs.target))
