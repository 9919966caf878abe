"""The benchmarks' own arithmetic and their report."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import attrs
import pytest

from benchmarks import harness, report
from benchmarks.harness import Row, Section
from benchmarks.loop import compare
from benchmarks.report import Measured

SECTION = Section(
    title="The loop: linear",
    note="A note.",
    rows=(
        Row(what="fast", median=0.5, q1=0.4, q3=0.6, at_most=0.85),
        Row(what="slow", median=2.0, q1=1.9, q3=2.1, at_most=1.8),
        Row(what="large", median=1234.5, unit="MB"),
        Row(what="many", median=9.0, at_least=8),
    ),
    details={"seconds": {name: [1.0, 2.0, 3.0] for name in ("limit", "bare", "proden", "ppl", "cc")}},
)
GROWTH = Section(title="Stacked: growth", note="", rows=(), details={"seconds per model": {"1": [0.3], "36": [0.03]}})


def test_ratios_are_taken_round_by_round() -> None:
    found = harness.ratio({"a": [1.0, 20.0, 3.0], "b": [2.0, 10.0, 3.0]}, "a", "b")
    assert found["median"] == 1.0  # of 1/2, 2 and 1; a ratio of medians would be 1 only by luck
    assert (found["q1"], found["q3"]) == (0.75, 1.5)


def test_every_case_runs_once_in_each_round() -> None:
    calls: list[str] = []
    seconds = harness.measure({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)
    assert calls == ["a", "b"] * 4
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_an_exponent_is_found_again() -> None:
    assert harness.exponent({n: [3 * n**1.5] for n in (10, 100, 1000)}) == pytest.approx(1.5)


def test_a_missed_target_is_shown_as_missed() -> None:
    table = report.markdown([Measured(section=SECTION, machine=report.machine())])
    assert "| fast | 0.5 (0.4 to 0.6) | ≤ 0.85 | met |" in table
    assert "| slow | 2 (1.9 to 2.1) | ≤ 1.8 | **missed** |" in table
    assert "| large | 1,234 MB |  |  |" in table
    assert "| many | 9 | ≥ 8 | met |" in table
    assert "MISSED" in report.text(SECTION)


def test_results_name_the_processor_and_not_the_machine() -> None:
    facts = json.dumps(report.machine())
    assert "processor" in facts
    assert platform.node() not in facts
    assert str(Path.home()) not in facts


def test_the_page_keeps_its_words_and_the_figure_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(report.draw, "__defaults__", (tmp_path / "figure.png",))
    report.write([SECTION, GROWTH], report.machine())
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert (
        json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["sections"][0]["rows"][0]["median"] == 0.5
    )
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_some_sections_are_replaced_beside_those_that_were_measured_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{report.BEGIN}\n{report.END}\n", encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(report.draw, "__defaults__", (tmp_path / "figure.png",))
    old, new = ({**report.machine(), "date": day} for day in ("2026-01-01", "2026-02-02"))
    report.write([SECTION, GROWTH], old)
    faster = attrs.evolve(SECTION, rows=(Row(what="faster", median=0.25),))
    another = attrs.evolve(SECTION, title="The loop: another")
    report.write([faster, another], new, all_of_them=False)
    assert [(each.section.title, each.machine["date"]) for each in report.kept()] == [
        ("The loop: linear", "2026-02-02"),
        ("The loop: another", "2026-02-02"),
        ("Stacked: growth", "2026-01-01"),
    ]
    text = page.read_text(encoding="utf-8")
    assert "| faster | 0.25 |" in text
    assert [text.count(day) for day in ("2026-01-01", "2026-02-02")] == [1, 1]


def test_a_comparison_times_every_loop_and_names_its_targets() -> None:
    section = compare("linear", rounds=2, scale=0.01)
    assert {row.what: row.target for row in section.rows} == {
        "limit / arithmetic": "",
        "bare / limit": "",
        "peer / limit": "",
        "proden / limit": "≤ 1.3",
        "ppl / limit": "≤ 1.6",
        "cc / limit": "",
        "proden / bare": "≤ 0.7",
        "ppl / bare": "",
        "cc / bare": "",
    }
    assert all(row.median > 0 for row in section.rows)
