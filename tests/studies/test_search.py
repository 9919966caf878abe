"""Searches: the grid by hand; Optuna's samplers replayed from results; pruning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies import search as search_module
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Search
from wsl_toolkit.studies.driver import study_states
from wsl_toolkit.studies.jobs import FINISHED, PRUNED
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.search import Outcome, Point, Pruner, grid, proposals
from wsl_toolkit.studies.store import StudyFolder


def test_a_grid_is_all_combinations_and_an_empty_space_one_point() -> None:
    assert grid({"a": [1, 2], "b": [3, 4]}) == [{"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4}]
    assert grid({}) == [{}]


SPACE = {"lr": {"low": 1e-6, "high": 1e-1, "log": True}, "weight_decay": [1e-4, 1e-2]}


def peak(point: Point) -> Outcome:
    """A toy objective: best at lr = 1e-3."""
    import math

    return FINISHED, -abs(math.log10(point["lr"]) + 3), []


@pytest.mark.parametrize("strategy", ["random", "tpe"])
def test_a_search_asked_again_with_the_same_results_proposes_the_same_points(strategy: str) -> None:
    search = Search(strategy=strategy, points=14, batch=4)
    done, complete = proposals(search, SPACE, 0, lambda point, earlier: peak(point))
    assert complete
    assert len(done) == 14
    known = {str(point): peak(point) for point in done}
    again, complete = proposals(search, SPACE, 0, lambda point, earlier: known.get(str(point)))
    assert complete
    assert again == done
    for count in (0, 5, 8):
        partial = {str(point): peak(point) for point in done[:count]}
        some, complete = proposals(search, SPACE, 0, lambda point, earlier, p=partial: p.get(str(point)))
        assert not complete
        assert some == done[: len(some)]
        assert len(some) == (count // 4 + 1) * 4


@pytest.mark.parametrize("strategy", ["random", "tpe"])
def test_a_study_read_back_or_written_in_another_order_searches_the_same_points(
    small: dict[str, Any], strategy: str, tmp_path: Path
) -> None:
    """TOML writes plain values before tables, so that a study read back has its space in another order."""
    methods = [{"estimator": "lw", "search": {"estimator.leverage": {"low": 0.0, "high": 2.0}}}]
    small |= {"search": {"strategy": strategy, "points": 4, "batch": 4, "space": SPACE}, "methods": methods}
    given = from_dict(small, "test")
    folder = StudyFolder(tmp_path, "small")
    folder.create()
    folder.write_study(given)
    turned = {**small, "search": {**small["search"], "space": dict(reversed(SPACE.items()))}}
    ids = [
        [job.id for job in study_states(study, folder, load_plugins().registry)[0].missing]
        for study in (given, folder.read_study(), from_dict(turned, "test"))
    ]
    assert len(set(ids[0])) == 4
    assert ids[0] == ids[1] == ids[2]


def test_tpe_learns_from_what_it_is_told() -> None:
    search = Search(strategy="tpe", points=40, batch=4)
    points, _ = proposals(search, SPACE, 0, lambda point, earlier: peak(point))
    early = sum(peak(p)[1] or 0 for p in points[:12]) / 12
    late = sum(peak(p)[1] or 0 for p in points[-12:]) / 12
    assert late > early


def test_the_median_pruner_stops_the_hopeless_and_leaves_the_rest() -> None:
    histories = [[0.5, 0.6, 0.7], [0.5, 0.65, 0.75], [0.4, 0.6, 0.7], [0.5, 0.6, 0.8], [0.5, 0.7, 0.8]]
    assert Pruner(histories).hopeless(1, 0.1)
    assert not Pruner(histories).hopeless(1, 0.9)
    assert not Pruner(histories[:2]).hopeless(1, 0.1)  # too few to judge by


def test_a_pruned_study_ends_and_never_selects_a_pruned_point(
    small: dict[str, Any], run_in: Callable[..., list[CellState]], tmp_path: Path
) -> None:
    small["methods"] = ["cc"]
    small["search"] = {
        "strategy": "random",
        "points": 10,
        "batch": 5,
        "epochs": 4,
        "prune": True,
        "space": {"lr": {"low": 1e-7, "high": 1.0, "log": True}},
    }
    (state,) = run_in(small)
    assert state.done
    scored = state.searches[0].scored
    assert len(scored) == 10
    statuses = [s.results[0].status for s in scored]
    assert PRUNED in statuses[5:]
    assert PRUNED not in statuses[:5]
    chosen = state.searches[0].chosen
    assert chosen is not None
    assert chosen.results[0].status == FINISHED
    assert chosen.value == max(s.value for s in scored if s.value is not None)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    run_in(small)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()} == before


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"wsl-toolkit\[search\]"):
        search_module.import_optuna()
    assert len(proposals(Search(), {"lr": [1, 2]}, 0, lambda p, e: None)[0]) == 2
