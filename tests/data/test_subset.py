"""`--subset`: a part of the training data, from a stream of its own, never by true labels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import wsl_toolkit as wsl
from wsl_toolkit.data.dataset import split
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.data.subset import describe_subset, subset_size, training_subset
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.jobs import make_job
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.training.config import RunConfig, Training

REGISTRY = load_plugins().registry


@pytest.fixture(scope="module")
def digits() -> wsl.Data:
    return wsl.load_data("digits")


def pairs(numbers: torch.Tensor, num_classes: int) -> CandidateSets:
    """Example i has the set {c, c+1} of its number c."""
    mask = torch.zeros(len(numbers), num_classes, dtype=torch.bool)
    for step in (0, 1):
        mask[torch.arange(len(numbers)), (numbers + step) % num_classes] = True
    return CandidateSets.from_mask(mask)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=60), st.integers(0, 5), st.data())
def test_each_different_set_keeps_its_share_up_to_one_example(numbers: list[int], seed: int, draw: Any) -> None:
    x = torch.arange(len(numbers) * 1.0).unsqueeze(1)
    data = wsl.Data(name="own", x=x, candidates=pairs(torch.tensor(numbers), 5), num_classes=5)
    size = draw.draw(st.integers(2, len(numbers)))
    kept = training_subset(data, torch.arange(len(numbers)), float(size), seed).tolist()
    assert len(kept) == len(set(kept)) == size
    assert kept == sorted(kept)
    before, after = Counter(numbers), Counter(numbers[place] for place in kept)
    for number, count in before.items():
        assert abs(after[number] - count * size / len(numbers)) < 1


def test_true_labels_decide_nothing(digits: wsl.Data) -> None:
    assert digits.y is not None
    train = torch.arange(len(digits.x))
    own = attrs.evolve(digits, candidates=pairs(train % 10, 10))
    for data in (digits, own):
        other = attrs.evolve(data, y=digits.y.flip(0))
        assert torch.equal(training_subset(data, train, 0.1, 3), training_subset(other, train, 0.1, 3))


def test_a_subset_is_another_for_another_seed_and_all_is_all(digits: wsl.Data) -> None:
    train = torch.arange(100, 400)
    first, other = (training_subset(digits, train, 50.0, seed) for seed in (0, 1))
    assert not torch.equal(first, other)
    assert set(first.tolist()) <= set(train.tolist())
    assert training_subset(digits, train, 1.0, 0) is train
    assert torch.equal(training_subset(digits, train, 300.0, 0), train)


def test_test_validation_and_the_sets_of_the_examples_that_stay_are_as_without(digits: wsl.Data) -> None:
    generator = REGISTRY.create("generator", "mcl-skewed", {})
    whole, part = (
        make_problem(digits, generator, seed=2, validation=0.1, test=0.2, subset=subset) for subset in (1.0, 200.0)
    )
    train = split(digits, 0.1, 0.2, stream(2, "split")).train
    places = torch.searchsorted(train, training_subset(digits, train, 200.0, 2))
    assert len(part.train_x) == 200
    assert torch.equal(part.train_candidates.mask(), whole.train_candidates.mask(places))
    assert part.validation_candidates == whole.validation_candidates
    assert torch.equal(part.clean.test, whole.clean.test)  # type: ignore[arg-type]
    assert torch.equal(part.clean.train, whole.clean.train[places])  # type: ignore[index,arg-type]
    assert isinstance(part.train_x, torch.Tensor)
    assert float(part.train_x.mean()) == pytest.approx(0, abs=1e-4)  # scaled by the examples that stay


@pytest.mark.parametrize(
    ("subset", "count", "size"), [(1.0, 7, 7), (0.5, 7, 4), (0.25, 8, 2), (2.0, 7, 2), (7.0, 7, 7), (0.999, 7, 7)]
)
def test_shares_and_counts(subset: float, count: int, size: int) -> None:
    assert subset_size(subset, count) == size


@pytest.mark.parametrize(
    ("subset", "message"),
    [
        (8.0, "--subset 8 is more than the 7 training examples that there are"),
        (2.5, "--subset 2.5 is neither a share below 1 nor a whole number"),
        (0.01, "--subset 0.01 of 7 training examples is none"),
    ],
)
def test_subsets_that_cannot_be_are_refused(subset: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        subset_size(subset, 7)


def test_it_is_said_in_the_name_and_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = wsl.train("digits", subset=150, epochs=1, trials=2)
    assert result.name.endswith("| 150 training examples")
    assert result.config["subset"] == 150
    assert [len(trial.candidates) for trial in result.trials] == [150, 150]
    trial = result.trials[1]
    assert torch.equal(trial.transform(wsl.load_data("digits").x[trial.examples]), trial.problem.train_x)
    with pytest.raises(ConfigError, match="neither a share below 1 nor a whole number"):
        wsl.train("digits", subset=1.5, epochs=1)
    assert describe_subset(0.125) == "12.5 % of the training examples"


def test_work_without_a_subset_is_known_as_before_there_was_one() -> None:
    components = {"dataset": ("digits", {}), "estimator": ("ppl", {}), "backbone": ("linear", {})}
    plain, part = (
        RunConfig(training=Training(subset=subset), components=components).resolved(REGISTRY) for subset in (1.0, 0.5)
    )
    assert "subset" not in plain.identity()
    assert "subset = 0.5" in part.identity()
    assert "subset" not in make_job(plain, "trial").config
    assert make_job(plain, "trial").id != make_job(part, "trial").id
