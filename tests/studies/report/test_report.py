"""Reports: what they say, and that nobody's names get out of their cells."""

from __future__ import annotations

import csv
import io
import re
import statistics
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest
from shown_study import NASTY

from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.jobs import DIVERGED
from wsl_toolkit.studies.report import figures
from wsl_toolkit.studies.report.build import Report, as_text, build_figures, build_report, write_report
from wsl_toolkit.studies.report.formats import escape_latex, escape_markdown
from wsl_toolkit.studies.report.numbers import pairs_csv
from wsl_toolkit.studies.report.statistics import best_and_ties, estimate, paired_p_value, signed_rank_p_value
from wsl_toolkit.studies.report.tables import Table, accuracy_table, by_seed, published, risk_table, selection_table
from wsl_toolkit.system.figure_style import PALETTE


def table(report: Report, key: str) -> Table:
    return next(t for t in report.tables if t.key == key)


def test_the_accuracy_table_shows_mean_and_error_and_bolds_best_and_ties(report: Report) -> None:
    shown = table(report, "accuracy")
    assert shown.columns == ("dataset", "sets", NASTY, "=CC")
    assert [row[1].text for row in shown.rows] == ["α = 0.9", "α = 0.7"]
    for number, row in enumerate(shown.rows):
        states = report.states[2 * number : 2 * number + 2]
        found = {s.cell.method.label: by_seed(s, "test/accuracy") for s in states}
        for state, entry in zip(states, row[2:], strict=True):
            label = state.cell.method.label
            assert entry.text == estimate(list(found[label].values())).show(2, 100)
            assert entry.bold == (label in best_and_ties(found))


def test_the_risk_table_bolds_the_smallest_standard_error(report: Report) -> None:
    shown = table(report, "risk")
    for number, row in enumerate(shown.rows):
        errors = [
            estimate(list(by_seed(s, "train/risk").values())).stderr for s in report.states[2 * number : 2 * number + 2]
        ]
        assert [entry.bold for entry in row[2:]] == [error == min(e for e in errors if e) for error in errors]


def test_p_values_of_both_tests_are_in_one_matrix_and_all_of_them_in_a_file(report: Report) -> None:
    shown = [t for t in report.tables if t.key == "p-values"]
    assert len(shown) == 2
    rows = list(csv.DictReader(io.StringIO(pairs_csv(report.study, report.states))))
    for number, (matrix, row) in enumerate(zip(shown, rows, strict=True)):
        first, second = (list(by_seed(s, "test/accuracy").values()) for s in report.states[2 * number : 2 * number + 2])
        assert matrix.rows[0][2].value == pytest.approx(paired_p_value(first, second))
        assert matrix.rows[1][1].value == pytest.approx(signed_rank_p_value(first, second))
        assert (matrix.rows[0][1].text, matrix.rows[1][2].text) == ("–", "–")
        assert "Wilcoxon's p-value cannot be below 0.25" in matrix.note
        assert float(row["t_test"]) == pytest.approx(paired_p_value(first, second))
        assert float(row["difference"]) == pytest.approx(statistics.fmean(first) - statistics.fmean(second))


def test_few_trials_ties_and_choices_at_the_edge_are_said(report: Report) -> None:
    assert "WARNING: with 3 trials such a test" in table(report, "accuracy").note
    enough = attrs.evolve(report.study, trials=5)
    assert "WARNING" not in accuracy_table(enough, report.states).note
    chosen = table(report, "selection")
    place = chosen.columns.index("remarks")
    assert all("lr, weight_decay at the edge" in row[place].text for row in chosen.rows)  # two values each: all are
    state = report.states[0]
    search = state.searches[0]
    values = [attrs.evolve(scored, value=0.5) for scored in search.scored]
    tied = attrs.evolve(search, scored=tuple(values), chosen=values[1])
    rows = selection_table(report.study, [attrs.evolve(state, searches=(tied,))])
    assert rows is not None
    assert "3 others as good" in rows.rows[0][rows.columns.index("remarks")].text


def as_if_on_mnist(report: Report) -> list[CellState]:
    """The same results under the paper's names, to see its numbers beside them."""
    study = attrs.evolve(
        report.study,
        paper_table=3,
        settings=tuple(attrs.evolve(s, dataset=("mnist", {})) for s in report.study.settings),
        methods=tuple(attrs.evolve(m, label=n) for m, n in zip(report.study.methods, ("PPL", "CC"), strict=True)),
    )
    return [attrs.evolve(state, cell=cell) for state, cell in zip(report.states, study.cells(), strict=True)]


def test_the_papers_own_numbers_stand_beside_ours(report: Report) -> None:
    states = as_if_on_mnist(report)
    shown = risk_table(states[0].cell.study, states)
    assert shown.columns == ("dataset", "sets", "PPL", "PPL (paper)", "CC", "CC (paper)")
    assert [entry.text for entry in shown.rows[0][3::2]] == ["0.256 ± 0.007", "0.120 ± 0.005"]
    assert [entry.bold for entry in shown.rows[0][3::2]] == [False, True]
    assert published(report.states[0]) is None


def test_an_unfinished_study_says_so_and_counts_its_trials(report: Report) -> None:
    first = report.states[0]
    failed = attrs.evolve(first.finished[1], status=DIVERGED)
    partial = attrs.evolve(first, results=(first.results[0], failed, None))
    empty = [attrs.evolve(s, results=(None,) * 3) for s in report.states[1:]]
    shown = build_report(report.study, [partial, *empty])
    assert not shown.complete
    assert shown.standing == "PARTIAL: 0 of 4 cells are complete."
    (row,) = table(shown, "accuracy").rows
    assert row[1].text.endswith("(1 of 3 trials, 1 diverged)")  # one setting is left: nothing but its data to name
    assert row[2].text == "–"
    nothing = build_report(report.study, [attrs.evolve(s, results=(None,) * 3, searches=()) for s in report.states])
    assert nothing.tables == ()
    assert build_figures(nothing) == {}


class Page(HTMLParser):
    """Collects tags and text as a browser would."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attributes if name.startswith("on")]
        self.sources += [value or "" for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_is_one_file_that_runs_nothing_and_shows_names_as_typed(report: Report) -> None:
    page = Page(as_text(report, "html"))
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert NASTY in page.texts
    assert page.sources
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert page.tags.count("table") == len(report.tables) == 6


def test_markdown_keeps_names_inside_their_cells(report: Report) -> None:
    text = as_text(report, "markdown")
    assert "<script" not in text
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1
    assert escape_markdown("a|b*c_d") == r"a\|b\*c\_d"


def test_latex_escapes_all_that_it_would_act_on(report: Report) -> None:
    assert escape_latex(r"50% \of_{x}^2 & $y# ~ ± α") == (
        r"50\% \textbackslash{}of\_\{x\}\textasciicircum{}2 \& \$y\# \textasciitilde{} $\pm$ $\alpha$"
    )
    text = as_text(report, "latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == len(report.tables)
    for line in text.splitlines():
        if line.endswith(r"\\"):
            columns = len(re.findall(r"(?<!\\)&", line)) + 1
            assert columns in {len(t.columns) for t in report.tables}


def test_csv_holds_every_trial_and_no_formula(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(as_text(report, "csv"))))
    assert len(rows) == 4 * 3
    assert {row["method"] for row in rows} == {NASTY, "'=CC"}
    trials = [result for state in report.states for result in state.finished]
    assert [float(row["test/accuracy"]) for row in rows] == [t.final["test/accuracy"] for t in trials]
    assert [float(row["lr"]) for row in rows] == [t.job.config["lr"] for t in trials]
    assert {row["selected_by"] for row in rows} == {"held-out covering rate"}


def test_all_files_are_written_and_agree(report: Report, tmp_path: Path) -> None:
    files = {path.name for path in write_report(report, tmp_path)}
    texts = {"report.md", "report.tex", "report.html", "trials.csv", "curves.csv", "search.csv", "pairs.csv"}
    assert (
        texts
        | {"accuracy.png", "critical-difference.png", "risk.png", "risk-spread.png", "search-01.png", "search-02.png"}
        == files
    )
    assert {path.name for path in tmp_path.iterdir()} == files
    for name in files:
        if name.endswith(".png"):
            assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
            assert name.removesuffix(".png") in (tmp_path / "report.md").read_text()
    curves = list(csv.DictReader((tmp_path / "curves.csv").open()))
    assert len(curves) == 4 * 3
    last = next(row for row in curves if row["epoch"] == "3")
    wanted = estimate(list(by_seed(report.states[0], "test/accuracy").values()))
    assert float(last["test/accuracy_mean"]) == pytest.approx(wanted.mean, abs=1e-6)
    search = list(csv.DictReader((tmp_path / "search.csv").open()))
    assert len(search) == 4 * 4
    assert sum(row["chosen"] == "yes" for row in search) == 4


def test_a_panel_for_each_alpha_shows_each_method_with_its_band(report: Report) -> None:
    canvas = figures.accuracy_curves(report.study, report.states)
    assert canvas is not None
    panels = [axes for axes in canvas.axes if axes.get_visible()]
    assert [panel.get_title() for panel in panels] == ["digits, linear, α = 0.9", "digits, linear, α = 0.7"]
    for panel, states in zip(panels, (report.states[:2], report.states[2:]), strict=True):
        assert len(panel.collections) == 2  # a standard-error band for each method
        for line, state in zip(panel.lines, states, strict=True):
            curves = [trial.history["test/accuracy"] for trial in state.finished]
            assert list(line.get_ydata()) == pytest.approx([sum(v) / 3 for v in zip(*curves, strict=True)])
        assert [line.get_color() for line in panel.lines] == list(PALETTE[:2])


def test_the_first_climb_of_long_curves_does_not_flatten_the_rest() -> None:
    from wsl_toolkit.system.figure_style import figure

    climb = [0.1, 0.5, *[0.90 + 0.0001 * epoch for epoch in range(98)]]
    with figure() as (_, panel):
        panel.plot(range(1, 101), climb)
        figures._begin_after_the_climb(panel)
        bottom, top = panel.get_ylim()
    assert 0.89 < bottom < 0.90
    assert max(climb) < top < 0.92


def test_the_heat_map_shows_every_point_and_marks_the_chosen_one(report: Report) -> None:
    from wsl_toolkit.studies.report.tables import rows_of

    row = rows_of(report.study, report.states)[0]
    canvas = figures.heat_maps(report.study, row)
    assert canvas is not None
    panel = canvas.axes[0]
    state = row.states[0]
    (image,) = panel.images
    values = [[None] * 2, [None] * 2]
    for scored in state.searches[0].scored:
        lr, decay = ([0.01, 0.1].index(scored.point["lr"]), [1e-4, 1e-2].index(scored.point["weight_decay"]))
        values[lr][decay] = scored.value
    assert image.get_array().tolist() == values
    (mark,) = panel.lines
    chosen = state.points[0]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (
        [1e-4, 1e-2].index(chosen["weight_decay"]),
        [0.01, 0.1].index(chosen["lr"]),
    )
