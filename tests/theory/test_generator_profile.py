"""A generator in numbers: exact up to 12 classes, by its declared setting or by sampling beyond."""

from __future__ import annotations

import math
from typing import ClassVar

import attrs
import pytest
import torch

from wsl_toolkit import Generator, Setting
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.theory.generator_profile import profile_generator


def create(name, **values):
    return load_plugins().registry.create("generator", name, values)


@attrs.frozen(kw_only=True)
class Quiet(Generator):
    """Draws like `cl` without probabilities."""

    name: ClassVar[str] = "quiet"
    setting: ClassVar[Setting] = Setting.GENERAL

    def draw(self, x, y, num_classes, rng):
        return create("cl").draw(x, y, num_classes, rng)


def test_sizes_mean_and_ambiguity_of_skewed_are_exact():
    profile = profile_generator(create("mcl-skewed", alpha=0.9), 10)
    weights = [0.9 ** (10 - k) for k in range(1, 10)]  # |s̄| = K - k
    expected = [w / sum(weights) for w in weights]
    assert profile.sizes[1:10].tolist() == pytest.approx(expected)
    assert profile.sizes[0] == profile.sizes[10] == 0
    assert profile.mean_size.exact
    assert round(profile.mean_size.value, 2) == 5.69
    assert abs(profile.sampled_mean_size.value - profile.mean_size.value) < 4 * profile.sampled_mean_size.error
    assert profile.ambiguity_degree.value == pytest.approx((profile.mean_size.value - 1) / 9)
    assert profile.samples.holds
    assert [row.size for row in profile.constants] == list(range(1, 10))
    for row in profile.constants:
        assert row.low == pytest.approx(row.high) == expected[row.size - 1] / math.comb(9, row.size - 1)
        assert row.possible == row.sets == math.comb(10, row.size)
    assert len(profile.examples) == 10
    assert all(y in s for y, s in profile.examples)


def test_constants_of_a_cmm_law_are_a_range_and_an_improper_law_has_none():
    rows = profile_generator(create("query"), 4).constants
    assert [(row.low, row.possible, row.sets) for row in rows] == [(0, 2, 4), (0, 2, 6), (0, 2, 4)]
    assert profile_generator(create("flip-class"), 4).constants is None


def test_pair_joins_the_next_class_only():
    profile = profile_generator(create("flip-class", matrix="pair", rate=0.3), 4)
    expected = torch.eye(4).double() + 0.3 * torch.eye(4).roll(1, dims=1).double()
    assert torch.allclose(profile.cooccurrence, expected)
    assert profile.ambiguity_degree.value == pytest.approx(0.3)


def test_beyond_twelve_classes_mcl_stays_exact_and_the_proof_is_at_twelve():
    profile = profile_generator(create("mcl-skewed", alpha=0.9), 40)
    weights = [0.9 ** (40 - k) for k in range(1, 40)]
    assert profile.mean_size.exact
    assert profile.mean_size.value == pytest.approx(sum(k * w for k, w in enumerate(weights, 1)) / sum(weights))
    assert profile.proof.num_classes == 12
    assert profile.proof.region is Setting.MCL
    assert profile.constants is None


def test_beyond_twelve_classes_other_settings_are_sampled():
    profile = profile_generator(create("query"), 20)
    assert not profile.mean_size.exact
    # Thresholds at j = 1..K-1: |s| is j with chance j/K, else K - j.
    exact = sum((j * j + (20 - j) ** 2) / 20 for j in range(1, 20)) / 19
    assert abs(profile.mean_size.value - exact) < 5 * profile.mean_size.error
    assert not profile.ambiguity_degree.exact
    assert profile.ambiguity_degree.value == pytest.approx(18 / 19, abs=0.05)


def test_parameters_that_fit_only_many_classes_leave_the_setting_unproven(tmp_path):
    path = tmp_path / "q.csv"
    k = 15
    rows = [[0 if i == j else 1 / (k - 1) for j in range(k)] for i in range(k)]
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    profile = profile_generator(create("cl-biased", matrix=str(path)), k)
    assert profile.proof is None
    assert profile.mean_size.value == k - 1


def test_a_generator_without_probabilities_is_drawn_from():
    profile = profile_generator(Quiet(), 5)
    assert profile.proof.method == "sampling"
    assert profile.samples is None
    assert not profile.mean_size.exact
    assert profile.mean_size.value == 4
    assert profile.ambiguity_degree.value == pytest.approx(0.75, abs=0.03)
    assert profile.constants is None
