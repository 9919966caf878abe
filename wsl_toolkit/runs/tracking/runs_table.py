"""MLflow's table of runs with columns that read well: trials, runs and the cells of a study in the same ones.

MLflow gives a column 100 pixels whatever it is called, and shows every digit of a number. So a run has, beside the
metrics under their full names with all their digits, a few rounded ones under short names, and tags that say method,
data, network and generator with its parameters. `runs_page` is the link that shows them, in columns that fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wsl_toolkit.errors import TrackingError, did_you_mean, one_line
from wsl_toolkit.runs.tracking import database
from wsl_toolkit.runs.tracking.store import client_of, redact, retry_while_locked
from wsl_toolkit.system.statistics import mean_and_error
from wsl_toolkit.training.metrics import METRICS, TEST_ACCURACY

DIGITS = 4
TRIALS = "trials"
ERROR = f"{METRICS[TEST_ACCURACY].column} SE"
NUMBERS = (
    METRICS[TEST_ACCURACY].column,
    ERROR,
    *(metric.column for metric in METRICS.values() if metric.column and metric.name != TEST_ACCURACY),
    TRIALS,
)
"""The columns of numbers: how well, with which standard error, over how many trials."""
ROLES = {"estimator": "method", "generator": "generator", "backbone": "network", "dataset": "data"}
"""The columns that say which components were used, by the components' roles."""
LONGEST_VALUE = 40

NAME_COLUMN, NAME_WIDTH = "attributes.`Run Name`", 260
NARROWEST, WIDTH_OF_A_LETTER, PADDING = 72, 8, 28
WIDE = {"method": 116, "generator": 130}
"""Columns whose values are longer than what they are called."""
SHOWN_RUNS = 1000
"""So many of the newest runs say which parameters of generators have a column."""
VIEW = "wsl"
KEY, CELL = "wsl.key", "cell:"
"""The tag by which a study knows its runs, and how it begins for those of cells."""


def table_numbers(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the rounded numbers of a row from the final metrics of one trial or of several."""
    found: dict[str, float] = {}
    for metric in METRICS.values():
        values = [trial[metric.name] for trial in trials if metric.name in trial]
        if metric.column and values:
            mean, error = mean_and_error(values)
            found[metric.column] = round(mean, DIGITS)
            if metric.name == TEST_ACCURACY and error is not None:
                found[ERROR] = round(error, DIGITS)
    return {**found, TRIALS: float(len(trials))} if found else {}


def table_tags(components: Mapping[str, tuple[str, Mapping[str, Any]] | None]) -> dict[str, str]:
    """Return the tags of a row: the components' names, and the generator's parameters under their own names."""
    found = {column: chosen[0] for role, column in ROLES.items() if (chosen := components.get(role)) is not None}
    _, values = components.get("generator") or ("", {})
    given = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in values.items()}
    return found | {key: text for key, text in given.items() if key not in found and len(text) <= LONGEST_VALUE}


def runs_page(uri: str, experiment: str | None) -> str:
    """Return the page of MLflow's interface that shows an experiment's runs with our columns."""
    try:
        return _runs_page(client_of(uri), experiment)
    except TrackingError:
        raise
    except Exception as error:
        raise TrackingError(f"the tracking store {redact(uri)} cannot be read: {redact(one_line(error))}") from None
    finally:
        database.tidy(uri)


def _runs_page(client: Any, experiment: str | None) -> str:
    known = retry_while_locked(client.search_experiments)
    found = [e for e in known if experiment in (None, e.name)]
    if experiment is not None and not found:
        raise TrackingError(
            f"there is no experiment {experiment!r}.{did_you_mean(experiment, [e.name for e in known])}"
        )
    newest = client.search_runs(
        [e.experiment_id for e in found], order_by=["attributes.start_time DESC"], max_results=1
    )
    if not newest and experiment is None:
        return "/#/experiments"
    chosen = newest[0].info.experiment_id if newest else found[0].experiment_id
    page = f"/#/experiments/{chosen}/runs?workflowType=machine_learning"
    try:
        runs = client.search_runs([chosen], order_by=["attributes.start_time DESC"], max_results=SHOWN_RUNS)
        # The interface keeps a shared view as a tag of the experiment; plain JSON is one of the forms that it reads.
        client.set_experiment_tag(chosen, f"mlflow.sharedViewState.{VIEW}", json.dumps(_view(runs)))
    except Exception:
        return page  # a store that is locked or may only be read is shown with MLflow's own columns
    return f"{page}&viewStateShareKey={VIEW}"


def _view(runs: Iterable[Any]) -> dict[str, Any]:
    """Return the state of the interface: columns and their widths; of a study the cells, in the order of their names.

    The interface folds the runs below another one, and no view can unfold them.
    """
    parameters: dict[str, None] = {}
    is_study = False
    for run in runs:
        own = {key.partition(".")[2] for key in run.data.params if key.startswith("generator.")}
        parameters |= {key: None for key in sorted(own) if key in run.data.tags and key not in ROLES.values()}
        is_study |= run.data.tags.get(KEY, "").startswith(CELL)
    facts = ("method", "generator", *parameters, "network", "data")
    names = {f"metrics.`{name}`": name for name in NUMBERS} | {f"tags.`{name}`": name for name in facts}
    return {
        "searchFilter": f"tags.`{KEY}` LIKE '{CELL}%'" if is_study else "",
        "orderByKey": "tags.`mlflow.runName`" if is_study else "attributes.start_time",
        "orderByAsc": is_study,
        "selectedColumns": list(names),
        "columnOrder": [NAME_COLUMN, *names],
        "columnWidths": {NAME_COLUMN: NAME_WIDTH, **{column: _width(name) for column, name in names.items()}},
    }


def _width(name: str) -> int:
    return WIDE.get(name, max(NARROWEST, WIDTH_OF_A_LETTER * len(name) + PADDING))
