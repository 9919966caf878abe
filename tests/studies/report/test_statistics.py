"""Means, paired tests and ranks, against values worked out by other means."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_toolkit.studies.report.paper import paper_risks
from wsl_toolkit.studies.report.statistics import (
    best_and_ties,
    estimate,
    holm,
    paired_p_value,
    ranks,
    signed_rank_p_value,
)

numbers = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


@settings(deadline=None)
@given(numbers)
def test_the_standard_error_is_that_of_the_mean(values: list[float]) -> None:
    found = estimate(values)
    assert found.mean == pytest.approx(statistics.fmean(values))
    variance = sum((v - found.mean) ** 2 for v in values) / (len(values) - 1)
    assert found.stderr == pytest.approx(math.sqrt(variance / len(values)), abs=1e-9)


def test_one_trial_has_no_standard_error() -> None:
    assert estimate([0.5]).stderr is None
    assert estimate([0.5]).show(2, 100) == "50.00"
    assert estimate([0.5, 0.7]).show(3) == "0.600 ± 0.100"


def test_the_paired_test_is_students_on_the_differences() -> None:
    # t = mean / (s / √n) = 2 / (1 / √3) = 3.4641 with 2 degrees of freedom: p = 1 - t / √(t² + 2) exactly.
    t = 2 * math.sqrt(3)
    assert paired_p_value([2.0, 3.0, 4.0], [1.0, 1.0, 1.0]) == pytest.approx(1 - t / math.sqrt(t * t + 2))


@settings(deadline=None)
@given(numbers, st.floats(-10, 10))
def test_equal_differences_are_a_tie_only_if_they_are_zero(values: list[float], shift: float) -> None:
    shifted = [v + shift for v in values]
    differences = {a - b for a, b in zip(values, shifted, strict=True)}
    if len(differences) == 1:
        assert paired_p_value(values, shifted) == (1.0 if abs(differences.pop()) <= 1e-12 else 0.0)
    assert paired_p_value(values, values) == 1.0


def test_wilcoxons_test_by_hand() -> None:
    # 5 differences of one sign: 2 of 2^5 patterns are as one-sided, so that 5 trials never reach 5 %.
    assert signed_rank_p_value([2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 1.0, 1.0, 1.0, 1.0]) == 2 / 32
    assert signed_rank_p_value([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 1.0
    assert math.isnan(signed_rank_p_value([1.0], [2.0]))


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=10, unique=True), st.data())
def test_wilcoxons_test_is_scipys_exact_one_where_no_differences_are_equal(values: list[float], data: Any) -> None:
    from scipy.stats import wilcoxon

    values = [place + value / 2 for place, value in enumerate(values, start=1)]
    signs = data.draw(st.lists(st.sampled_from([-1, 1]), min_size=len(values), max_size=len(values)))
    differences = [sign * value for sign, value in zip(signs, values, strict=True)]
    wanted = wilcoxon(differences, method="exact").pvalue
    assert signed_rank_p_value(differences, [0.0] * len(values)) == pytest.approx(wanted)


def test_holms_correction_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    corrected = holm([0.02, math.nan, 0.6])
    assert corrected[0] == pytest.approx(0.04)
    assert math.isnan(corrected[1])
    assert corrected[2] == 0.6
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holms_correction_lies_between_none_and_bonferronis_and_keeps_the_order(values: list[float]) -> None:
    corrected = holm(values)
    for p, q in zip(values, corrected, strict=True):
        assert p <= q <= min(1.0, len(values) * p) or q == 1.0
    order = sorted(range(len(values)), key=lambda place: values[place])
    assert [corrected[place] for place in order] == sorted(corrected)


def test_pairing_finds_what_unpaired_means_hide() -> None:
    """Trials differ much from each other, methods by a steady point: a tie unpaired, a difference paired."""
    hard_and_easy = {seed: 50.0 + 10 * seed for seed in range(5)}
    better = {seed: value + 1 + 0.01 * seed for seed, value in hard_and_easy.items()}
    noisy = {seed: value + 1 + (-1) ** seed * 3 for seed, value in hard_and_easy.items()}
    assert best_and_ties({"plain": hard_and_easy, "better": better}) == {"better"}
    assert best_and_ties({"better": better, "noisy": noisy}) == {"better", "noisy"}


def test_only_common_trials_are_compared() -> None:
    assert best_and_ties({"a": {0: 1.0, 1: 1.1}, "b": {2: 0.5, 3: 0.6}}) == {"a"}
    assert best_and_ties({}) == set()


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3).map(float), min_size=1))
def test_ranks_are_scipys(values: dict[str, float]) -> None:
    from scipy.stats import rankdata

    wanted = rankdata([-v for v in values.values()])
    assert list(ranks(values).values()) == list(wanted)


def test_the_papers_tables_are_complete_and_bold_where_the_error_is_smallest() -> None:
    risks = paper_risks()
    assert len(risks) == 92  # 2 tables of 12 rows and 4 methods, without LW at 4 places of CIFAR-10
    assert str(risks["mnist", "linear", 0.9, "PPL"]) == "0.256 ± 0.007"
    assert str(risks["fashion-mnist", "linear", 0.7, "LW"]) == "0.195 ± 0.007"
    assert str(risks["cifar10", "densenet22", 0.8, "MCL"]) == "1.330 ± 0.232"
    rows = {key[:3] for key in risks}
    assert len(rows) == 24
    for row in rows:
        found = {method: risks[*row, method] for method in ("MCL", "PPL", "CC", "LW") if (*row, method) in risks}
        (bold,) = (risk for risk in found.values() if risk.bold)
        assert bold.stderr == min(risk.stderr for risk in found.values())
