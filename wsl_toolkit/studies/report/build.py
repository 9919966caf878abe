"""A report: the tables and figures of a study as far as it has come, and their files."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.codes import OtherCode, codes_of
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.report import figures, formats, numbers, page
from wsl_toolkit.studies.report.against import WITHIN, Published, against_rows, against_table, compare
from wsl_toolkit.studies.report.beside_paper import agreement, risks_against_paper
from wsl_toolkit.studies.report.pairs import pair_tables
from wsl_toolkit.studies.report.protocol import protocol_table
from wsl_toolkit.studies.report.rank_figure import critical_difference_diagram
from wsl_toolkit.studies.report.ranking import rank_table, ranking
from wsl_toolkit.studies.report.statistics import estimate
from wsl_toolkit.studies.report.tables import (
    Table,
    accuracy_table,
    by_seed,
    readable,
    risk_table,
    rows_of,
    selection_table,
)
from wsl_toolkit.system.figure_style import png, save
from wsl_toolkit.system.files import write_atomically


@attrs.frozen(kw_only=True)
class Report:
    """What a study has to say."""

    study: Study
    states: tuple[CellState, ...]
    tables: tuple[Table, ...]
    other_code: OtherCode = attrs.field(factory=OtherCode)
    """Which of the results the code that is installed now did not make."""
    against: tuple[dict[str, Any], ...] = ()
    """A row for each published number that the study is compared with."""

    @property
    def title(self) -> str:
        """The study's title, or its name."""
        return self.study.title or self.study.name

    @property
    def complete(self) -> bool:
        """Whether every cell has all its trials."""
        return all(state.done for state in self.states)

    @property
    def standing(self) -> str:
        """How much of the study is in this report."""
        done = sum(state.done for state in self.states)
        told = f"PARTIAL: {done} of {len(self.states)} cells are complete."
        if self.complete:
            told = f"Complete: {done} cells of {self.study.trials_words} each."
        if self.other_code.results:
            told += f" {self.other_code.sentence}: {'; '.join(self.other_code.changes)}."
        if mixed := [state.cell.label for state in self.states if len(codes_of(state)) > 1]:
            told += f" RESULTS OF DIFFERENT CODE are mixed (--keep-old) in: {'; '.join(mixed)}."
        return told


def build_report(
    study: Study,
    states: Sequence[CellState],
    published: Sequence[Published] = (),
    other_code: OtherCode | None = None,
    within: float = WITHIN,
) -> Report:
    """Make the tables of whatever is there, with published numbers beside ours where they are given.

    A verdict says which of them are `within` so many points.
    """
    risks = risk_table(study, states)
    risks = attrs.evolve(risks, note=risks.note + agreement(states))
    tables = [readable(accuracy_table(study, states)), readable(risks)]
    if published:
        tables.insert(1, against_table(study, states, published, within))
    tables += pair_tables(study, states)
    tables += [t for t in (rank_table(study, states), selection_table(study, states)) if t is not None]
    tables = [table for table in tables if table.rows]
    if tables:
        tables.append(protocol_table(study, states))
    return Report(
        study=study,
        states=tuple(states),
        tables=tuple(tables),
        other_code=other_code or OtherCode(),
        against=tuple(against_rows(compare(study, states, published), within)),
    )


def build_figures(report: Report) -> dict[str, Any]:
    """Draw the figures, by file name; lines and panels of very many methods would show nothing, and are left out."""
    study, states = report.study, report.states
    drawn = {"critical-difference": critical_difference_diagram(ranking(study, states))}
    if len(study.methods) > figures.MOST_LINES:
        return {name: drawing for name, drawing in drawn.items() if drawing is not None}
    drawn |= {
        "accuracy": figures.accuracy_curves(study, states),
        "risk": figures.risk_curves(study, states),
        "risk-spread": figures.risk_spread(study, states),
        "risk-against-paper": risks_against_paper(states),
    }
    for number, row in enumerate(rows_of(study, states), start=1):
        drawn[f"search-{number:02d}"] = figures.heat_maps(study, row)
    return {name: drawing for name, drawing in drawn.items() if drawing is not None}


def as_text(report: Report, form: str) -> str:
    """Return the report as markdown, latex, csv or html; CSV has a row for each trial, or each published number."""
    if form == "markdown":
        return formats.markdown(report.title, report.standing, report.tables)
    if form == "latex":
        return formats.latex(report.title, report.standing, report.tables)
    if form == "csv":
        return numbers.csv_text(report.against) if report.against else numbers.trials_csv(report.states)
    return page.html_page(report.title, report.standing, report.tables, _images(build_figures(report)))


def as_plain(report: Report) -> dict[str, Any]:
    """Return the report's standing and tables as plain values, for JSON."""
    tables = [
        {
            "key": table.key,
            "title": table.title,
            "columns": list(table.columns),
            "rows": [[entry.text for entry in row] for row in table.rows],
            "values": [[_finite(entry.value) for entry in row] for row in table.rows],
            "stderr": [[_finite(entry.stderr) for entry in row] for row in table.rows],
            "bold": [[entry.bold for entry in row] for row in table.rows],
            "note": table.note,
        }
        for table in report.tables
    ]
    about: dict[str, Any] = {"study": report.study.name, "title": report.title, "complete": report.complete}
    about["other_code"] = attrs.asdict(report.other_code)
    if report.against:
        about["against"] = list(report.against)
    return {**about, "cells": [_cell_numbers(state) for state in report.states], "tables": tables}


def _cell_numbers(state: CellState) -> dict[str, Any]:
    """Return a cell's numbers: each trial's last metrics by seed, their means and standard errors, what was chosen."""
    names = dict.fromkeys(name for result in state.finished for name in result.final)
    metrics = {}
    for name in names:
        values = by_seed(state, name)
        found = estimate(list(values.values()))
        metrics[name] = {
            "mean": _finite(found.mean),
            "stderr": _finite(found.stderr),
            "by_seed": {seed: _finite(value) for seed, value in values.items()},
        }
    return {
        "setting": state.cell.setting.label,
        "method": state.cell.method.label,
        "estimator": state.cell.method.estimator[0],
        "complete": state.done,
        "trials": len(state.finished),
        "chosen": state.points,
        "code": codes_of(state),
        "metrics": metrics,
    }


def _finite(value: float | None) -> float | None:
    """Return a number that JSON has a word for, or None."""
    return value if value is not None and math.isfinite(value) else None


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write every form of the report below a folder; return the files."""
    drawn = build_figures(report)
    texts = {
        "report.md": formats.markdown(report.title, report.standing, report.tables, tuple(drawn)),
        "report.tex": formats.latex(report.title, report.standing, report.tables),
        "report.html": page.html_page(report.title, report.standing, report.tables, _images(drawn)),
        "report.json": json.dumps(as_plain(report), indent=2, ensure_ascii=False) + "\n",
        "trials.csv": numbers.trials_csv(report.states),
        "curves.csv": numbers.curves_csv(report.states),
        "trial-curves.csv": numbers.trial_curves_csv(report.states),
        "search.csv": numbers.search_csv(report.states),
        "pairs.csv": numbers.pairs_csv(report.study, report.states),
    }
    if report.against:
        texts["against.csv"] = numbers.csv_text(report.against)
    for name, text in texts.items():
        write_atomically(folder / name, text)
    pictures = [folder / f"{name}.{suffix}" for name in drawn for suffix in ("png", "svg", "pdf")]
    for path in pictures:
        save(drawn[path.stem], path)
    return [*(folder / name for name in texts), *pictures]


def _images(drawn: dict[str, Any]) -> dict[str, bytes]:
    """Return figures as PNG; pictures cannot carry anybody's markup into a page."""
    return {name: png(canvas) for name, canvas in drawn.items()}
