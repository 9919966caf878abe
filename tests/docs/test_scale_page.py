"""The plan on paper: its tables are what the simulation gives, and the simulation does what it says."""

from __future__ import annotations

import pytest

from benchmarks.scale_simulation import BEGIN, END, PAGE, simulate_study, text


def test_the_page_shows_what_the_simulation_gives() -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == text().strip(), "run `python -m benchmarks.scale_simulation --write`"


def test_without_deaths_and_a_driver_that_costs_nothing_a_long_study_is_nearly_perfect() -> None:
    efficiency, lost = simulate_study(8, 8_000, 60, 0.0, 1e9)
    assert lost == 0
    assert 0.98 < efficiency <= 1


def test_a_driver_that_takes_long_is_what_bounds_a_study() -> None:
    workers, seconds, driver = 200, 60.0, 1.0
    efficiency, _ = simulate_study(workers, 20 * workers, seconds, driver, 1e9)
    assert efficiency == pytest.approx(seconds / (workers * driver), rel=0.05)


def test_deaths_cost_what_was_lost() -> None:
    calm, none = simulate_study(4, 400, 3600, 0.0, 1e9)
    stormy, some = simulate_study(4, 400, 3600, 0.0, 1.0)
    assert none == 0
    assert some > 0
    assert stormy < calm
