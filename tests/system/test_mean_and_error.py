"""Mean and standard error, in one place."""

from __future__ import annotations

import pytest

from wsl_toolkit.system.statistics import mean_and_error, summarise


def test_the_standard_error_is_the_sample_deviation_over_the_root_of_the_number() -> None:
    assert mean_and_error([1.0, 2.0, 3.0]) == (2.0, pytest.approx(1 / 3**0.5))


def test_one_value_has_no_standard_error() -> None:
    assert mean_and_error([0.5]) == (0.5, None)
    assert summarise([{"a": 0.5}]) == {"a_mean": 0.5}


def test_metrics_of_the_first_trial_are_summarised_over_the_trials_that_have_them() -> None:
    found = summarise([{"a": 1.0, "b": 2.0}, {"a": 3.0}])
    assert found == {"a_mean": 2.0, "a_stderr": pytest.approx(1.0), "b_mean": 2.0}
    assert summarise([]) == {}
