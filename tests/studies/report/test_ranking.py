"""Ranks over settings: Friedman's test and Nemenyi's difference against published values, groups, and the diagram."""

from __future__ import annotations

import math
import random

import attrs
import pytest

from wsl_toolkit.studies.jobs import DIVERGED
from wsl_toolkit.studies.report.build import Report, build_figures, build_report
from wsl_toolkit.studies.report.figures import MOST_LINES
from wsl_toolkit.studies.report.rank_figure import critical_difference_diagram
from wsl_toolkit.studies.report.ranking import Ranking, critical_difference, friedman_p_value, rank_table, ranking
from wsl_toolkit.studies.report.tables import Entry, Table, readable


@pytest.mark.parametrize(
    ("methods", "quantile"),
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (9, 3.102), (10, 3.164)],
)
def test_the_critical_difference_has_demsars_quantiles(methods: int, quantile: float) -> None:
    """Table 5(a) of Demšar (2006), at 5 %."""
    found = critical_difference(methods, 14)
    assert found == pytest.approx(quantile * math.sqrt(methods * (methods + 1) / (6 * 14)), rel=1e-3)


def test_friedmans_statistic_is_its_formula() -> None:
    from scipy.stats import chi2

    rng = random.Random(1)
    n, k = 9, 4
    rows = [rng.sample(range(100), k) for _ in range(n)]
    sums = [sum(1 + sum(other > row[j] for other in row) for row in rows) for j in range(k)]
    statistic = 12 / (n * k * (k + 1)) * sum(r * r for r in sums) - 3 * n * (k + 1)
    values = {str(j): [float(row[j]) for row in rows] for j in range(k)}
    assert friedman_p_value(values) == pytest.approx(float(chi2.sf(statistic, k - 1)), rel=1e-9)


def test_too_little_is_not_tested() -> None:
    assert friedman_p_value({"a": [1.0, 2.0], "b": [2.0, 1.0]}) is None
    assert friedman_p_value({"a": [1.0], "b": [2.0], "c": [3.0]}) is None
    assert friedman_p_value({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [1.0, 1.0]}) == 1.0
    assert critical_difference(1, 5) is None
    assert critical_difference(3, 1) is None


def made(mean: dict[str, float], difference: float | None) -> Ranking:
    first = dict.fromkeys(mean, 0)
    return Ranking(mean=mean, first=first, settings=5, p_value=0.01, critical_difference=difference)


def test_groups_are_the_largest_runs_within_the_difference() -> None:
    mean = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 5.0, "e": 5.5}
    assert made(mean, 1.5).groups() == [("a", "b"), ("b", "c"), ("d", "e")]
    assert made(mean, 2.6).groups() == [("a", "b", "c"), ("c", "d", "e")]
    assert made(mean, 100.0).groups() == [("a", "b", "c", "d", "e")]
    assert made(mean, 0.1).groups() == []
    assert made(mean, None).groups() == []


def test_the_diagram_names_every_method_and_draws_each_group() -> None:
    found = made({f"method {i}": float(i + 1) for i in range(9)}, 2.5)
    drawing = critical_difference_diagram(found)
    assert drawing is not None
    texts = " ".join(text.get_text() for text in drawing.axes[0].texts)
    assert all(name in texts for name in found.mean)
    assert "CD = 2.50" in texts
    bars = [line for line in drawing.axes[0].lines if line.get_linewidth() == 3]
    assert len(bars) == len(found.groups()) == 7
    assert critical_difference_diagram(None) is None
    assert critical_difference_diagram(made({"a": 1.0, "b": 2.0}, None)) is None


def test_a_studys_ranks_come_from_its_mean_accuracies(report: Report) -> None:
    found = ranking(report.study, report.states)
    assert found is not None
    assert found.settings == 2
    assert sum(found.mean.values()) == pytest.approx(3)
    assert list(found.mean.values()) == sorted(found.mean.values())
    table = rank_table(report.study, report.states)
    assert table is not None
    assert "Over 2 settings" in table.note
    assert f"closer than {found.critical_difference:.2f}" in table.note
    assert "critical-difference" in build_figures(report)


def test_a_method_that_diverged_is_last(report: Report) -> None:
    first, *others = report.states
    diverged = attrs.evolve(first, results=tuple(attrs.evolve(r, status=DIVERGED) for r in first.results if r))
    found = ranking(report.study, [diverged, *others])
    assert found is not None
    assert found.settings == 2
    assert found.mean[first.cell.method.label] >= 1.5


def test_what_is_not_there_is_left_out_and_named(report: Report) -> None:
    three = tuple(attrs.evolve(report.study.methods[0], label=label) for label in "abc")
    study = attrs.evolve(report.study, methods=three)
    done = report.states[0]
    states = [attrs.evolve(done, cell=cell) for cell in study.cells()]
    missing = {"results": tuple(None for _ in done.results)}
    states[2] = attrs.evolve(states[2], **missing)  # c in the first setting
    found = ranking(study, states)
    assert found is not None
    assert (set(found.mean), found.left_out, found.settings) == ({"a", "b"}, ("c",), 2)
    table = rank_table(study, states)
    assert table is not None
    assert "Not ranked, since without a result in some of them: c." in table.note
    states[1] = attrs.evolve(states[1], **missing)  # one method of three: that setting does not count
    found = ranking(study, states)
    assert found is not None
    assert (set(found.mean), found.settings) == ({"a", "b", "c"}, 1)


def test_tables_of_many_methods_are_turned_over() -> None:
    names = [f"m{i}" for i in range(13)]
    row = (Entry("digits"), Entry("α = 0.9"), *(Entry(str(i)) for i in range(13)))
    table = Table(key="k", title="t", columns=("dataset", "sets", *names), rows=(row,), labels=2)
    turned = readable(table)
    assert turned.columns == ("method \\ dataset, sets", "digits, α = 0.9")
    assert turned.rows[3] == (Entry("m3"), Entry("3"))
    assert turned.labels == 1
    few = attrs.evolve(table, columns=table.columns[:5], rows=(row[:5],))
    assert readable(few) is few


def test_many_methods_have_no_curves_but_a_diagram(report: Report) -> None:
    method = report.study.methods[0]
    many = tuple(attrs.evolve(method, label=f"m{i}") for i in range(MOST_LINES + 1))
    study = attrs.evolve(report.study, methods=many)
    states = [attrs.evolve(s, cell=cell) for cell in study.cells() for s in report.states[:1]]
    assert set(build_figures(build_report(study, states))) == {"critical-difference"}
