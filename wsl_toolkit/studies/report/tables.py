"""The tables of a report, as plain content; how they look is the business of each format."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from wsl_toolkit.studies.cells import CellState, SeedSearch
from wsl_toolkit.studies.description import Study, StudySetting, component_label
from wsl_toolkit.studies.jobs import DIVERGED
from wsl_toolkit.studies.report.paper import PaperRisk, paper_risks
from wsl_toolkit.studies.report.statistics import FEW_TRIALS, Estimate, best_and_ties, estimate
from wsl_toolkit.studies.selection import at_edge, near_best
from wsl_toolkit.studies.store import describe_point

NOTHING = "–"
MANY_METHODS = 12
"""Tables of more methods than this have a row for each instead of a column."""


@attrs.frozen
class Entry:
    """A table's cell."""

    text: str
    bold: bool = False
    value: float | None = None
    """The number that the text shows, unrounded."""
    stderr: float | None = None
    """Its standard error."""
    trials: int | None = None
    """How many trials stand behind it."""


@attrs.frozen(kw_only=True)
class Table:
    """A titled table with a note below it."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    note: str = ""
    labels: int = 1
    """How many columns from the left are text; the others are numbers."""


def readable(table: Table) -> Table:
    """Return the table as it is, or turned over if so many methods are its columns that nobody could read it."""
    headings, methods = table.columns[: table.labels], table.columns[table.labels :]
    if len(methods) <= MANY_METHODS:
        return table
    names = (", ".join(entry.text for entry in row[: table.labels]) for row in table.rows)
    return attrs.evolve(
        table,
        columns=(f"method \\ {', '.join(headings)}", *names),
        rows=tuple((Entry(name), *(row[table.labels + i] for row in table.rows)) for i, name in enumerate(methods)),
        labels=1,
    )


@attrs.frozen
class Row:
    """One setting with the states of all methods."""

    setting: StudySetting
    states: tuple[CellState, ...]


def rows_of(study: Study, states: Sequence[CellState]) -> list[Row]:
    """Return the settings in which at least one method has a trial."""
    width = len(study.methods)
    rows = [Row(setting, tuple(states[i * width : (i + 1) * width])) for i, setting in enumerate(study.settings)]
    return [row for row in rows if any(state.finished for state in row.states)]


def setting_columns(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[Entry, ...]]]:
    """Return headings and labels that tell the rows apart: data, sets and network as far as they vary."""
    parts = {
        "dataset": [row.setting.data_label for row in rows],
        "sets": [row.setting.sets_label for row in rows],
        "network": [component_label(row.setting.backbone) for row in rows],
    }
    names = [name for name, values in parts.items() if name == "dataset" or len(set(values)) > 1]
    return tuple(names), [tuple(Entry(parts[name][i]) for name in names) for i in range(len(rows))]


def oracle_mark(study: Study) -> str:
    """Return the words that go with every number that clean labels helped to choose."""
    searched = any(cell.space for cell in study.cells())
    return " (ORACLE selection: hyper-parameters chosen with clean labels)" if _oracle(study) and searched else ""


def _oracle(study: Study) -> bool:
    return study.selection.is_oracle


def by_seed(state: CellState, metric: str) -> dict[int, float]:
    """Return the last value of a metric for each trial that ended well."""
    return {result.job.seed: result.final[metric] for result in state.finished if metric in result.final}


def shown_trials(state: CellState) -> str:
    """Return how many trials stand behind a cell if it is not all of them."""
    missing = state.cell.trials - len(state.finished)
    diverged = sum(r is not None and r.status == DIVERGED for r in state.results)
    if not missing:
        return ""
    words = f"{len(state.finished)} of {state.cell.trials} trials"
    return f" ({words}{f', {diverged} diverged' if diverged else ''})"


def accuracy_table(study: Study, states: Sequence[CellState]) -> Table:
    """Return test accuracies: best in bold, and all that a paired test cannot tell from it."""
    shown = rows_of(study, states)
    headings, labels = setting_columns(shown)
    rows = []
    for row, names in zip(shown, labels, strict=True):
        found = {s.cell.method.label: by_seed(s, "test/accuracy") for s in row.states}
        found = {label: values for label, values in found.items() if values}
        winners = best_and_ties(found)
        entries = [*names]
        for state in row.states:
            label = state.cell.method.label
            if label not in found:
                entries.append(Entry(NOTHING))
                continue
            own = estimate(list(found[label].values()))
            text = own.show(2, 100) + shown_trials(state)
            entries.append(_measured(text, own, len(found[label]), bold=label in winners, factor=100))
        rows.append(tuple(entries))
    several = any(state.cell.trials > 1 for state in states)
    tied = "Bold: the best, and what a paired t-test at 5 % cannot tell from it." if several else "Bold: best."
    if few := [state.cell.trials for state in states if 1 < state.cell.trials < FEW_TRIALS]:
        tied += (
            f" WARNING: with {min(few)} trials such a test finds large differences alone, and bold says little: run "
            f"{FEW_TRIALS} or more."
        )
    return Table(
        key="accuracy",
        title=f"Test accuracy in % at the last epoch{oracle_mark(study)}",
        columns=(*headings, *(m.label for m in study.methods)),
        rows=tuple(rows),
        labels=len(headings),
        note=f"{'Mean ± standard error over' if several else 'Of'} {study.trials_words} with the same splits and "
        f"candidate sets. {tied}",
    )


def _measured(text: str, found: Estimate, trials: int, *, bold: bool, factor: float = 1.0) -> Entry:
    stderr = None if found.stderr is None else factor * found.stderr
    return Entry(text, bold=bold, value=factor * found.mean, stderr=stderr, trials=trials)


def published(state: CellState) -> PaperRisk | None:
    """Return the paper's number for a cell, where it has one."""
    cell = state.cell
    alpha = cell.setting.generator[1].get("alpha") if cell.setting.generator else None
    if cell.study.paper_table is None or alpha is None:
        return None
    return paper_risks().get((cell.setting.dataset[0], cell.setting.backbone[0], float(alpha), cell.method.label))


def risk_table(study: Study, states: Sequence[CellState]) -> Table:
    """Return empirical risks, the smallest standard error in bold, beside the paper's own numbers where it has some."""
    rows = rows_of(study, states)
    with_paper = any(published(state) for row in rows for state in row.states)
    headings, labels = setting_columns(rows)
    columns = [*headings]
    for method in study.methods:
        columns += [method.label, f"{method.label} (paper)"] if with_paper else [method.label]
    body = []
    max_trials = max((state.cell.trials for state in states), default=1)
    for row, names in zip(rows, labels, strict=True):
        found = {s.cell.method.label: estimate(list(v.values())) for s in row.states if (v := by_seed(s, "train/risk"))}
        errors = {label: e.stderr for label, e in found.items() if e.stderr is not None}
        smallest = min(errors, key=lambda label: errors[label]) if errors else None
        entries = [*names]
        for state in row.states:
            label = state.cell.method.label
            if label in found:
                own, trials = found[label], len(by_seed(state, "train/risk"))
                entries.append(_measured(own.show(4) + shown_trials(state), own, trials, bold=label == smallest))
            else:
                entries.append(Entry(NOTHING))
            if with_paper:
                theirs = published(state)
                entries.append(
                    Entry(str(theirs), bold=theirs.bold, value=theirs.mean, stderr=theirs.stderr)
                    if theirs
                    else Entry(NOTHING)
                )
        body.append(tuple(entries))
    return Table(
        key="risk",
        title=f"Empirical risk at the last epoch{oracle_mark(study)}",
        columns=tuple(columns),
        rows=tuple(body),
        labels=len(headings),
        note="Each method's own loss on its training set, so means do not compare between methods."
        + (" Bold: the smallest standard error of the row" if max_trials > 1 else "")
        + (", ours and the paper's apart." if with_paper and max_trials > 1 else "." if max_trials > 1 else ""),
    )


def _remarks(state: CellState, search: SeedSearch) -> str:
    """Return what one should know of a choice: that others were as good, that it lies at the edge of the grid."""
    assert search.chosen is not None
    others = len(near_best(search.scored, state.cell.study.selection)) - 1
    found = []
    if others:
        exact = state.cell.study.selection.tolerance == "none"
        found.append(f"{others} as good" if exact else f"{others} within 1 s.e.")
    if edges := at_edge(search.chosen.point, state.cell.space):
        found.append(f"edge: {', '.join(edges)}")
    return "; ".join(found) or NOTHING


def selection_table(study: Study, states: Sequence[CellState]) -> Table | None:
    """Return what was chosen and how well it did by the rule, or None if nothing was searched."""
    chosen = [state for state in states if any(search.chosen is not None for search in state.searches)]
    headings, labels = setting_columns([Row(state.cell.setting, (state,)) for state in chosen])
    rows = []
    for state, names in zip(chosen, labels, strict=True):
        for search in state.searches:
            if search.chosen is None or search.chosen.value is None:
                continue
            failed = sum(scored.value is None for scored in search.scored)
            seed = str(search.seed)
            point = Entry(describe_point(search.chosen.point))
            counts = Entry(f"{len(search.scored)}" + (f" ({failed} diverged or pruned)" if failed else ""))
            label = (Entry(state.cell.method.label), *((Entry(seed),) if study.selection.per_trial else ()))
            score = Entry(f"{search.chosen.value:.4f}", value=search.chosen.value, stderr=search.chosen.stderr)
            rows.append((*names, *label, point, Entry(_remarks(state, search)), score, counts))
    if not rows:
        return None
    left = (*headings, "method", *(("trial",) if study.selection.per_trial else ()), "chosen", "remarks")
    return Table(
        key="selection",
        title=f"Selected hyper-parameters{oracle_mark(study)}",
        columns=(*left, study.selection.rule.replace("-", " "), "points"),
        rows=tuple(rows),
        note=f"Chosen by {study.selection}; no test label was within reach of the search. "
        "Remarks: how many other points were as good (ties go to the stronger weight decay), and which values lie at "
        "the edge of their grid, beyond which there may be something better.",
        labels=len(left),
    )
