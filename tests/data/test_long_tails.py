"""Long tails: an exact profile, thinned by the seed, a whole test part, and rare classes that are measured."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import wsl_toolkit as wsl
from wsl_toolkit.data.dataset import Data, long_tail, split
from wsl_toolkit.data.formats import sources
from wsl_toolkit.data.loading import load_data
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.errors import DataError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.formulas import mean_recall, shots

REGISTRY = load_plugins().registry


def digits(ratio: float) -> Data:
    return load_data(REGISTRY.create("dataset", "digits", {"imbalance": ratio}), Path())


@given(
    counts=st.lists(st.integers(1, 5000), min_size=2, max_size=30),
    ratio=st.floats(1, 300),
)
@settings(max_examples=80, deadline=None)
def test_the_profile_is_exponential_and_as_large_as_the_classes_allow(counts, ratio):
    kept = long_tail(torch.tensor(counts), ratio)
    exact = [ratio ** (-k / (len(counts) - 1)) for k in range(len(counts))]
    largest = min(n / share for n, share in zip(counts, exact, strict=True))
    for k, share in enumerate(exact):
        assert int(kept[k]) <= counts[k]
        assert int(kept[k]) == max(1, int(largest * share + 1e-9))
    assert any(abs(int(kept[k]) - n) <= 1 for k, n in enumerate(counts)), "some class keeps all it has"


def test_equal_classes_have_the_ratio_that_was_asked_for():
    kept = long_tail(torch.full((10,), 5000), 100)
    assert kept[0] == 5000
    assert kept[-1] == 50
    assert torch.equal(long_tail(torch.full((10,), 5000), 1), torch.full((10,), 5000))


def counts_of(data: Data, part: torch.Tensor) -> list[int]:
    return torch.bincount(data.y[part], minlength=10).tolist()


def test_the_seed_decides_who_stays_and_the_test_part_is_not_thinned():
    whole, thin = digits(1), digits(20)
    splits = [split(thin, 0.1, 0.2, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    plain = split(whole, 0.1, 0.2, torch.Generator().manual_seed(0))
    assert torch.equal(splits[0].train, splits[1].train)
    assert not torch.equal(splits[0].train, splits[2].train)
    assert torch.equal(splits[0].test, plain.test)
    known = torch.cat([splits[0].train, splits[0].validation])
    found = counts_of(thin, known)
    assert found == long_tail(torch.tensor(counts_of(whole, torch.cat([plain.train, plain.validation]))), 20).tolist()
    assert found == sorted(found, reverse=True)
    assert found[0] / found[-1] == pytest.approx(20, rel=0.15)


def test_a_long_tail_is_other_data_and_no_long_tail_is_the_same_as_ever():
    assert digits(1).digest() == REGISTRY.create("dataset", "digits", {}).load(Path()).digest()
    assert len({digits(ratio).digest() for ratio in (1, 20, 100)}) == 3


def test_without_true_labels_there_is_no_long_tail(tmp_path):
    (tmp_path / "t.csv").write_text("x,candidates\n1,a|b\n2,b\n3,a\n", encoding="utf-8")
    with pytest.raises(DataError, match="an imbalance of 5 must be at least 1, and needs true labels"):
        sources.load(tmp_path / "t.csv", {"imbalance": 5.0}, REGISTRY, tmp_path)


def test_a_class_without_examples_is_named():
    data = attrs.evolve(digits(1), num_classes=11, class_names=None, imbalance=2)
    with pytest.raises(DataError, match="class 10 has no examples"):
        split(data, 0.1, 0.2, torch.Generator())


def test_many_medium_and_few_are_thirds_by_the_number_of_training_examples():
    found = shots(torch.tensor([5, 90, 40, 7, 100, 60, 30, 80, 20, 1]))
    groups = {name: mask.nonzero().flatten().tolist() for name, mask in found.items()}
    assert groups == {"many": [1, 4, 7], "medium": [2, 5, 6, 8], "few": [0, 3, 9]}
    two = shots(torch.tensor([3, 9]))
    assert (two["many"].tolist(), two["medium"].tolist(), two["few"].tolist()) == (
        [False, True],
        [False, False],
        [True, False],
    )


def test_balanced_accuracy_is_the_mean_of_the_classes_accuracies():
    from sklearn.metrics import balanced_accuracy_score, recall_score

    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (200,), generator=rng)
    labels[:3] = -1
    logits = torch.randn(200, 5, generator=rng)
    known, guessed = labels[3:], logits.argmax(1)[3:]
    assert mean_recall(logits, labels).item() == pytest.approx(balanced_accuracy_score(known, guessed), abs=1e-6)
    chosen = torch.tensor([True, False, True, False, True])
    recalls = recall_score(known, guessed, labels=[0, 2, 4], average=None)
    assert mean_recall(logits, labels, chosen).item() == pytest.approx(recalls.mean(), abs=1e-6)


def test_what_is_counted_are_the_training_examples_and_only_evaluation_gets_them():
    generator = REGISTRY.create("generator", "flip", {})
    problem = make_problem(digits(20), generator, seed=0, validation=0.1, test=0.2)
    assert problem.class_counts.tolist() == torch.bincount(problem.clean.train, minlength=10).tolist()
    assert make_problem(digits(1), generator, seed=0, validation=0.1, test=0.2).class_counts is None
    blind = make_problem(digits(20), generator, seed=0, validation=0.1, test=0.2, clean=("train",))
    assert blind.class_counts is None, "a problem without test labels has nothing to measure with them"


def test_a_run_on_a_long_tail_shows_its_rare_classes_and_another_run_does_not():
    names = {"test/balanced_accuracy", *(f"test/{name}_shot_accuracy" for name in ("many", "medium", "few"))}
    given = {"estimator": "cc", "generator": {"name": "flip", "q": 0.3}, "epochs": 2}
    found = wsl.train(digits(20), **given).metrics
    assert names <= set(found)
    assert found["test/many_shot_accuracy"] > found["test/few_shot_accuracy"]
    assert not names & set(wsl.train(digits(1), **given).metrics)
