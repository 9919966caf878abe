"""The numbers behind a report, as rows and as CSV: one for each trial, search point, or epoch."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from wsl_toolkit.parameters import plain
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study, component_label
from wsl_toolkit.studies.report.pairs import pairs_of
from wsl_toolkit.studies.report.statistics import estimate
from wsl_toolkit.studies.report.tables import rows_of

WHERE = ("dataset", "generator", "backbone", "method", "estimator", "estimator_given")


def _setting(state: CellState) -> dict[str, str]:
    setting = state.cell.setting
    return {
        "dataset": setting.data_label,
        "generator": component_label(setting.generator) if setting.generator else "",
        "backbone": component_label(setting.backbone),
    }


def _where(state: CellState) -> dict[str, str]:
    name, values = state.cell.method.estimator
    given = json.dumps(plain_values(values), sort_keys=True) if values else ""
    return {**_setting(state), "method": state.cell.method.label, "estimator": name, "estimator_given": given}


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a component's values as JSON has them."""
    return {key: plain(value) for key, value in values.items()}


def trial_rows(states: Sequence[CellState]) -> list[dict[str, Any]]:
    """Return one row for each trial: where, seed, hyper-parameters, the last epoch's metrics, how it was selected."""
    rows = []
    for state in states:
        rule = str(state.cell.study.selection) if state.cell.space else "nothing was searched"
        for result in state.results:
            if result is None:
                continue
            config = result.job.config
            about = {"seed": result.job.seed, "lr": config["lr"], "weight_decay": config["weight_decay"]}
            own = {k: v for k, v in config["estimator"].items() if k != "name"}
            about |= {"estimator_parameters": json.dumps(own, sort_keys=True) if own else ""}
            about |= {"epochs": config["epochs"], "selected_by": rule}
            about |= {"status": result.status, "mean_set_size": round(result.mean_size, 6)}
            rows.append({**_where(state), **about, **result.final, "candidates": result.candidates_hash})
    return rows


def trials_csv(states: Sequence[CellState]) -> str:
    """Return the rows of all trials."""
    return csv_text(trial_rows(states))


def search_rows(states: Sequence[CellState]) -> list[dict[str, Any]]:
    """Return one row for each point of each search, with its score by the rule."""
    return [
        {
            **_where(state),
            "seed": search.seed,
            "rule": state.cell.study.selection.rule,
            **scored.point,
            "score": "" if scored.value is None else scored.value,
            "chosen": "yes" if search.chosen is not None and scored is search.chosen else "no",
        }
        for state in states
        for search in state.searches
        for scored in search.scored
    ]


def search_csv(states: Sequence[CellState]) -> str:
    """Return the rows of all searches."""
    return csv_text(search_rows(states))


def pair_rows(study: Study, states: Sequence[CellState]) -> list[dict[str, Any]]:
    """Return one row for each pair of methods in each setting: mean difference, p-values, and Holm's corrections."""
    return [
        {**_setting(row.states[0]), **attrs.asdict(pair)} for row in rows_of(study, states) for pair in pairs_of(row)
    ]


def pairs_csv(study: Study, states: Sequence[CellState]) -> str:
    """Return the rows of all pairs."""
    return csv_text(pair_rows(study, states))


def curves_csv(states: Sequence[CellState], metrics: Sequence[str] = ("test/accuracy", "train/risk")) -> str:
    """Return mean and standard error of some metrics at each epoch."""
    rows: list[dict[str, Any]] = []
    for state in states:
        if not state.finished:
            continue
        for epoch in range(min(len(next(iter(result.history.values()))) for result in state.finished)):
            row: dict[str, Any] = {**_where(state), "epoch": epoch + 1, "trials": len(state.finished)}
            for name in metrics:
                values = [result.history[name][epoch] for result in state.finished if name in result.history]
                if values:
                    found = estimate(values)
                    row[f"{name}_mean"] = round(found.mean, 7)
                    row[f"{name}_stderr"] = "" if found.stderr is None else round(found.stderr, 7)
            rows.append(row)
    return csv_text(rows)


def trial_curve_rows(states: Sequence[CellState]) -> list[dict[str, Any]]:
    """Return one row for each trial and epoch, with every metric that was measured."""
    rows: list[dict[str, Any]] = []
    for state in states:
        for result in state.results:
            if result is None:
                continue
            epochs = max(map(len, result.history.values()), default=0)
            rows += [
                {
                    **_where(state),
                    "seed": result.job.seed,
                    "status": result.status,
                    "epoch": epoch + 1,
                    **{name: values[epoch] for name, values in result.history.items() if epoch < len(values)},
                }
                for epoch in range(epochs)
            ]
    return rows


def trial_curves_csv(states: Sequence[CellState]) -> str:
    """Return the rows of all trials and epochs."""
    return csv_text(trial_curve_rows(states))


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV under the union of their columns, in the order of first appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row)) or list(WHERE)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(_guarded(rows))
    return buffer.getvalue()


def _guarded(rows: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Keep spreadsheets from taking a name that a user typed for a formula."""
    for row in rows:
        yield {k: f"'{v}" if isinstance(v, str) and v.startswith(("=", "+", "@")) else v for k, v in row.items()}
