"""Reports: what they say, and that nobody's names get out of their cells."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import re
import statistics
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown_study import NASTY

from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.jobs import DIVERGED
from wsl_toolkit.studies.report import figures
from wsl_toolkit.studies.report.build import Report, as_plain, as_text, build_figures, build_report, write_report
from wsl_toolkit.studies.report.formats import escape_latex, escape_markdown
from wsl_toolkit.studies.report.numbers import curves_csv, pairs_csv, search_csv, trial_curves_csv, trials_csv
from wsl_toolkit.studies.report.statistics import best_and_ties, estimate, paired_p_value, signed_rank_p_value
from wsl_toolkit.studies.report.tables import Table, accuracy_table, by_seed, published, risk_table, selection_table
from wsl_toolkit.system.figure_style import PALETTE, figure


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
    for trials, warned in ((1, False), (2, True), (4, True), (5, False)):
        study = attrs.evolve(report.study, trials=trials)
        states = [attrs.evolve(s, cell=cell) for s, cell in zip(report.states, study.cells(), strict=True)]
        assert ("WARNING" in accuracy_table(study, states).note) == warned
    chosen = table(report, "selection")
    place = chosen.columns.index("remarks")
    assert all("edge: lr, weight_decay" in row[place].text for row in chosen.rows)  # two values each: all are
    state = report.states[0]
    search = state.searches[0]
    values = [attrs.evolve(scored, value=0.5) for scored in search.scored]
    tied = attrs.evolve(search, scored=tuple(values), chosen=values[1])
    rows = selection_table(report.study, [attrs.evolve(state, searches=(tied,))])
    assert rows is not None
    assert "3 as good" in rows.rows[0][rows.columns.index("remarks")].text


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


def test_our_risks_are_ranked_and_drawn_against_the_papers(report: Report) -> None:
    states = as_if_on_mnist(report)
    shown = build_report(states[0].cell.study, states)
    ours = [estimate(list(by_seed(state, "train/risk").values())) for state in states]
    theirs = [published(state) for state in states]
    found = table(shown, "risk").note
    for word, own, other in (
        ("our 4 means with the paper's: ", [e.mean for e in ours], [p.mean for p in theirs if p]),
        ("the standard errors: ", [e.stderr or 0.0 for e in ours], [p.stderr for p in theirs if p]),
    ):
        # The correlation of ranks, of which equal numbers share the mean.
        places = [[sum(a < b for a in v) + sum(a == b for a in v) / 2 for b in v] for v in (own, other)]
        assert f"{word}{statistics.correlation(*places):.2f}" in found
    assert "risk-against-paper" in build_figures(shown)
    few = build_report(states[0].cell.study, states[:3])
    assert "Spearman" not in table(few, "risk").note
    assert "risk-against-paper" not in build_figures(few)
    assert "Spearman" not in table(report, "risk").note


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


def test_the_page_is_one_file_that_runs_its_own_script_alone_and_shows_names_as_typed(report: Report) -> None:
    text = as_text(report, "html")
    page = Page(text)
    assert page.tags.count("script") == page.tags.count("style") == 1
    assert "link" not in page.tags
    assert NASTY in page.texts
    assert page.sources
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert page.tags.count("table") == len(report.tables) == 7


def test_the_pages_policy_allows_what_is_on_it_and_nothing_else(report: Report) -> None:
    """As a browser does it: the hash of what stands between the tags must be in the policy."""
    text = as_text(report, "html")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
    assert rules["default-src"] == ["'none'"]
    assert "unsafe" not in policy
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == [f"'sha256-{digest}'"]
    assert not re.search(r"<[^>]+ style=", text)  # an attribute that the policy would forbid


def test_a_number_on_the_page_can_be_sorted_by_and_says_more_of_itself(report: Report) -> None:
    text = as_text(report, "html")
    entry = table(report, "accuracy").rows[0][2]
    assert entry.value is not None
    assert (
        f'data-value="{entry.value!r}" title="{entry.value:.6g}; standard error {entry.stderr:.3g}; 3 trials"' in text
    )
    assert text.count('<button type="button">') == sum(len(t.columns) for t in report.tables)
    assert text.count('type="search"') == sum(len(t.rows) > 3 for t in report.tables) > 0


def test_json_holds_numbers(report: Report) -> None:
    found = json.loads(json.dumps(as_plain(report), allow_nan=False))
    assert len(found["cells"]) == len(report.states)
    for cell, state in zip(found["cells"], report.states, strict=True):
        values = by_seed(state, "test/accuracy")
        accuracy = cell["metrics"]["test/accuracy"]
        assert accuracy["by_seed"] == {str(seed): value for seed, value in values.items()}
        assert accuracy["mean"] == estimate(list(values.values())).mean
        assert cell["chosen"] == state.points
    shown = next(t for t in found["tables"] if t["key"] == "accuracy")
    wanted = estimate(list(by_seed(report.states[0], "test/accuracy").values()))
    assert shown["values"][0][2] == pytest.approx(100 * wanted.mean)
    assert shown["stderr"][0][2] == pytest.approx(100 * wanted.stderr)


def test_the_protocol_is_on_the_page(report: Report) -> None:
    rows = {row[0].text: row[1].text for row in table(report, "protocol").rows}
    assert (rows["epochs"], rows["batch size"], rows["optimiser"]) == ("3", "128", "sgd")
    assert rows["learning rate"] == "searched"
    assert rows["searched: lr"] == "0.01, 0.1"
    assert rows["search"] == "grid, 2 epochs"
    assert "held-out covering rate" in rows["selection"]
    assert "wsl-toolkit" in rows["versions of this report"]
    assert "torch" in rows["versions of this report"]
    root = Path(__file__).parents[3]
    if (root / ".git").exists():
        asked = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        assert rows["commit of the toolkit"].startswith(asked.stdout.strip())
    assert "Protocol" in as_text(report, "latex")


def test_captions_speak_of_what_is_there(report: Report) -> None:
    assert "paper" not in " ".join(t.note + t.title for t in report.tables)
    states = as_if_on_mnist(report)
    assert "the paper's apart" in risk_table(states[0].cell.study, states).note
    single = attrs.evolve(report.study, trials=1)
    alone = [
        attrs.evolve(state, cell=cell, results=state.results[:1], trials=state.trials[:1])
        for state, cell in zip(report.states, single.cells(), strict=True)
    ]
    notes = accuracy_table(single, alone).note + risk_table(single, alone).note
    assert "standard error" not in notes
    assert "t-test" not in notes


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
    assert [row["estimator"] for row in rows[::3]] == ["ppl", "cc", "ppl", "cc"]


def test_csv_tells_methods_of_one_estimator_apart(report: Report) -> None:
    state = report.states[0]
    method = attrs.evolve(state.cell.method, estimator=("lw", {"leverage": 2.0}), label="LW 2")
    other = attrs.evolve(state, cell=attrs.evolve(state.cell, method=method))
    for text in (trials_csv([other]), trial_curves_csv([other]), curves_csv([other]), search_csv([other])):
        row = next(csv.DictReader(io.StringIO(text)))
        assert (row["method"], row["estimator"], row["estimator_given"]) == ("LW 2", "lw", '{"leverage": 2.0}')


def test_all_files_are_written_and_agree(report: Report, tmp_path: Path) -> None:
    files = {path.name for path in write_report(report, tmp_path)}
    texts = {"report.md", "report.tex", "report.html", "report.json"}
    texts |= {f"{name}.csv" for name in ("trials", "curves", "trial-curves", "search", "pairs")}
    drawn = ("accuracy", "critical-difference", "risk", "risk-spread", "search-01", "search-02")
    assert texts | {f"{name}.{suffix}" for name in drawn for suffix in ("png", "svg", "pdf")} == files
    assert {path.name for path in tmp_path.iterdir()} == files
    for name in files:
        if name.endswith(".png"):
            assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
            assert name.removesuffix(".png") in (tmp_path / "report.md").read_text()
        if name.endswith(".pdf"):
            assert (tmp_path / name).read_bytes().startswith(b"%PDF")
        if name.endswith(".svg"):
            assert ElementTree.parse(tmp_path / name).getroot().tag.endswith("svg")
    each = list(csv.DictReader((tmp_path / "trial-curves.csv").open()))
    assert len(each) == 4 * 3 * 3
    first = report.states[0].finished[0]
    assert [float(row["test/accuracy"]) for row in each[:3]] == first.history["test/accuracy"]
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


@pytest.mark.parametrize("count", range(1, 14))
def test_panels_fill_every_line_of_a_figure(count: int) -> None:
    counts = figures.even_lines(count)
    assert sum(counts) == count
    assert max(counts) <= figures.MOST_PANELS
    assert max(counts) - min(counts) <= 1
    with figure(figsize=(6, 4)) as (canvas, empty):
        empty.remove()
        panels = figures.filled_rows(canvas, counts)
    assert len(panels) == len(canvas.axes) == count
    for line in range(len(counts)):
        spans = [p.get_subplotspec().colspan for p in panels if p.get_subplotspec().rowspan.start == line]
        assert [column for span in spans for column in span] == list(range(panels[0].get_gridspec().ncols))


def test_a_mix_of_settings_leaves_no_place_empty(report: Report) -> None:
    """Two ways of labelling one dataset, two others for another: 2 datasets x 4 ways would be a staircase."""
    generators = (("mcl-skewed", {"alpha": 0.9}), ("cl", {}), ("partition", {}), ("flip", {}))
    names = ("digits", "digits", "mnist", "mnist")
    mixed = tuple(
        attrs.evolve(report.study.settings[0], dataset=(name, {}), generator=generator)
        for name, generator in zip(names, generators, strict=True)
    )
    study = attrs.evolve(report.study, settings=mixed)
    states = [attrs.evolve(s, cell=c) for s, c in zip((*report.states, *report.states), study.cells(), strict=True)]
    canvas = figures.accuracy_curves(study, states)
    assert canvas is not None
    assert len(canvas.axes) == 4
    assert all(panel.get_visible() and panel.lines for panel in canvas.axes)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.booleans())
def test_the_colours_of_a_heat_map_reach_from_the_best_and_tell_the_better_half_apart(
    values: list[float], more_is_better: bool
) -> None:
    low, high, cut = figures.colour_range(values, more_is_better=more_is_better)
    assert low < high
    best = max(values) if more_is_better else min(values)
    assert low <= best <= high
    middle = statistics.median(values)
    if middle != best and max(values) - min(values) > 1e-6:
        assert abs(middle - best) >= (high - low) / 3 - 1e-12
        assert low - 1e-12 <= middle <= high + 1e-12
    inside = all(low - 1e-9 <= value <= high + 1e-9 for value in values)
    assert inside == (cut == "neither") or math.isclose(min(values), max(values), abs_tol=1e-6)


def test_one_lost_point_does_not_flatten_a_heat_map() -> None:
    low, high, cut = figures.colour_range([0.90, 0.91, 0.92, 0.93, 0.1], more_is_better=True)
    assert (low, high) == pytest.approx((0.87, 0.93))
    assert cut == "min"
    low, high, cut = figures.colour_range([2.0, 2.1, 2.2, 900.0], more_is_better=False)
    assert (low, high) == pytest.approx((2.0, 2.45))
    assert cut == "max"
    low, high, cut = figures.colour_range([0.5, 0.5], more_is_better=True)
    assert (low, high) == pytest.approx((0.495, 0.505))
    assert cut == "neither"


def test_the_first_climb_of_long_curves_does_not_flatten_the_rest() -> None:
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
