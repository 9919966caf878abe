"""Selection without cheating."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.cells import CellState, cell_state
from wsl_toolkit.studies.driver import StudyError
from wsl_toolkit.studies.executor import Inline
from wsl_toolkit.studies.jobs import DIVERGED, FINISHED, Job, JobResult, make_job
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.rule import Selection
from wsl_toolkit.studies.selection import Scored, SelectionError, at_edge, best, near_best, score, standard_error
from wsl_toolkit.studies.store import Results, StudyFolder
from wsl_toolkit.studies.tasks import Task
from wsl_toolkit.studies.worker import TaskWorker, clean_parts


class Touched(Exception):
    """Somebody looked at what they must not."""


class Untouchable(torch.Tensor):
    """A tensor that cannot be looked at: every operation on it is an error."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Touched(str(function))


def digits_with_official_test_part() -> Data:
    whole: Data = load_plugins().registry.create("dataset", "digits", {}).load(Path())
    assert whole.y is not None
    return attrs.evolve(whole, x=whole.x[:1500], y=whole.y[:1500], test_x=whole.x[1500:], test_y=whole.y[1500:])


def selection_jobs(small: dict[str, Any], home: Path) -> list[Job]:
    state = cell_state(
        next(from_dict(small, "test").cells()),
        Results(StudyFolder(home, "small"), load_plugins().registry),
        load_plugins().registry,
    )
    return list(state.missing)


@pytest.mark.parametrize("folds", [1, 3])
def test_a_search_runs_to_its_end_with_test_labels_and_inputs_that_cannot_be_touched(
    small: dict[str, Any], tmp_path: Path, folds: int
) -> None:
    data = digits_with_official_test_part()
    assert data.test_x is not None
    assert data.test_y is not None
    object.__setattr__(data, "test_x", data.test_x.as_subclass(Untouchable))
    object.__setattr__(data, "test_y", data.test_y.as_subclass(Untouchable))
    with pytest.raises(Touched):
        make_problem(data, load_plugins().registry.create("generator", "cl", {}), seed=0, validation=0.1, test=0.2)
    small["selection"] = {"folds": folds}
    jobs = selection_jobs(small, tmp_path)
    assert {job.purpose for job in jobs} == {"selection"}
    worker = TaskWorker()
    task = Task(jobs=tuple(jobs), data_dir=tmp_path)
    worker._data = (f"{tmp_path} {jobs[0].run_config().components['dataset']}", data)
    results = list(worker.run(task))
    assert len(results) == 2 * folds
    for result in results:
        assert not [name for name in result.history if name.startswith("test/") or "oracle" in name]


def test_the_problem_of_a_search_carries_no_clean_label_unless_the_rule_is_the_oracle(
    small: dict[str, Any], tmp_path: Path
) -> None:
    registry = load_plugins().registry
    for rule, seen in (("covering-rate", None), ("oracle-accuracy", 0)):
        small["selection"] = {"rule": rule}
        job = selection_jobs(small, tmp_path)[0]
        config = job.run_config()
        problem = TaskWorker().problem(job, config, Task(jobs=(job,), data_dir=tmp_path))
        assert problem.clean.test is None
        assert len(problem.test_x) == 0
        assert problem.clean.train is None
        assert (problem.clean.validation is None) == (seen is None)
        trial = attrs.evolve(job, purpose="trial")
        assert clean_parts(trial, config, registry) == {"train", "validation", "test"}


def test_the_supervised_bound_alone_gets_training_labels_during_a_search(small: dict[str, Any], tmp_path: Path) -> None:
    small["methods"] = ["supervised"]
    job = selection_jobs(small, tmp_path)[0]
    assert clean_parts(job, job.run_config(), load_plugins().registry) == {"train"}


def result(job: Job, value: float, metric: str = "validation/covering_rate", status: str = FINISHED) -> JobResult:
    return JobResult(job=job, status=status, history={metric: [0.0, value]}, message="the loss became nan")


@pytest.fixture
def job(small: dict[str, Any], tmp_path: Path) -> Job:
    return selection_jobs(small, tmp_path)[0]


@pytest.mark.parametrize(
    ("rule", "metric", "wins"),
    [
        ("covering-rate", "validation/covering_rate", 0.9),
        ("approximated-accuracy", "validation/approximated_accuracy", 0.9),
        ("oracle-accuracy", "validation/oracle_accuracy", 0.9),
        ("held-out-risk", "validation/risk", 0.1),
    ],
)
def test_each_rule_takes_the_best_by_its_own_metric(job: Job, rule: str, metric: str, wins: float) -> None:
    selection = Selection(rule=rule)
    scored = [score({"lr": v}, [result(job, v, metric)], selection) for v in (0.5, 0.9, 0.1, 0.7)]
    assert best(scored, selection).point == {"lr": wins}


def test_cross_validation_averages_the_folds(job: Job) -> None:
    selection = Selection(folds=2)
    steady = score({"lr": 1}, [result(job, 0.6), result(job, 0.6)], selection)
    lucky = score({"lr": 2}, [result(job, 0.9), result(job, 0.1)], selection)
    assert best([lucky, steady], selection) is steady


def test_a_point_that_diverged_never_wins_and_ties_go_to_the_first(job: Job) -> None:
    selection = Selection()
    failed = score({"lr": 0}, [result(job, 1.0, status=DIVERGED)], selection)
    first, second = (score({"lr": v}, [result(job, 0.5)], selection) for v in (1, 2))
    assert best([failed, first, second], selection) is first
    with pytest.raises(SelectionError, match="all 1 points of the search diverged"):
        best([failed], selection)


def test_equal_values_go_to_the_stronger_weight_decay_whatever_the_order(job: Job) -> None:
    selection = Selection()
    weak, strong, worse = (
        score({"lr": 0.1, "weight_decay": decay}, [result(job, value)], selection)
        for decay, value in ((1e-4, 0.5), (1e-2, 0.5), (1e-1, 0.4))
    )
    for order in itertools.permutations((weak, strong, worse)):
        assert best(order, selection) is strong
    assert near_best((weak, strong, worse), selection) == [weak, strong]


@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_the_standard_error_of_a_share_is_that_of_its_examples_exactly(hits: list[bool]) -> None:
    by_hand = statistics.stdev(map(float, hits)) / math.sqrt(len(hits))
    found = standard_error([statistics.fmean(hits)], len(hits), share=True)
    assert found == pytest.approx(by_hand, abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=60))
def test_the_standard_error_of_a_mean_confidence_is_an_upper_bound(values: list[float]) -> None:
    found = standard_error([statistics.fmean(values)], len(values), share=True)
    assert found is not None
    assert found >= statistics.stdev(values) / math.sqrt(len(values)) - 1e-9


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_the_standard_error_of_folds_is_that_of_their_mean(values: list[float]) -> None:
    by_hand = math.sqrt(sum((v - statistics.fmean(values)) ** 2 for v in values) / (len(values) * (len(values) - 1)))
    assert standard_error(values, 0, share=False) == pytest.approx(by_hand, abs=1e-9)
    assert standard_error(values[:1], 100, share=False) is None
    assert standard_error(values[:1], 0, share=True) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1e-3, 1e-2])), min_size=1, max_size=9), st.data())
def test_one_standard_error_takes_the_strongest_decay_that_is_not_told_from_the_best(
    points: list[tuple[float, float]], data: st.DataObject
) -> None:
    selection, held_out = Selection(tolerance="one-standard-error"), 101
    scored = [
        Scored(point={"weight_decay": decay}, results=(), value=value, stderr=math.sqrt(value * (1 - value) / 100))
        for value, decay in points
    ]
    chosen = best(data.draw(st.permutations(scored)), selection)
    assert chosen.value is not None
    top = max(value for value, _ in points)
    least = top - math.sqrt(top * (1 - top) / (held_out - 1))
    assert chosen.value >= least
    assert chosen.point["weight_decay"] == max(decay for value, decay in points if value >= least)
    same = [value for value, decay in points if value >= least and decay == chosen.point["weight_decay"]]
    assert chosen.value == max(same)


def test_a_study_within_one_standard_error_counts_its_held_out_examples(
    small: dict[str, Any], run_in: Callable[..., list[CellState]], tmp_path: Path
) -> None:
    small["selection"] = {"tolerance": "one-standard-error"}
    small["search"] = {"epochs": 2, "space": {"lr": [0.1], "weight_decay": [1e-6, 1e-5]}}
    state = run_in(small)[0]
    held_out = StudyFolder(tmp_path, "small").held_out()
    job = state.searches[0].jobs[0]
    problem = TaskWorker().problem(job, job.run_config(), Task(jobs=(job,), data_dir=tmp_path))
    assert list(held_out.values()) == [len(problem.validation_x)]
    value = state.searches[0].scored[0].value
    assert value is not None
    wanted = math.sqrt(value * (1 - value) / (len(problem.validation_x) - 1))
    assert state.searches[0].scored[0].stderr == pytest.approx(wanted)
    assert state.points == [{"lr": 0.1, "weight_decay": 1e-5}]  # the two learn the same, as good as


def test_one_standard_error_is_refused_where_there_is_none(small: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="set folds to 2 or more"):
        Selection(rule="held-out-risk", tolerance="one-standard-error")
    assert Selection(rule="held-out-risk", folds=2, tolerance="one-standard-error").folds == 2
    unknown = [Scored(point={}, results=(), value=0.5)]
    with pytest.raises(SelectionError, match="the number of held-out examples is not known"):
        best(unknown, Selection(tolerance="one-standard-error"))


def test_a_choice_at_the_edge_of_its_grid_is_found() -> None:
    space = {"lr": [0.01, 0.1, 1.0], "weight_decay": [1e-4], "momentum": {"low": 0.0, "high": 0.9}}
    assert at_edge({"lr": 1.0, "weight_decay": 1e-4, "momentum": 0.9}, space) == ["lr"]
    assert at_edge({"lr": 0.01}, space) == ["lr"]
    assert at_edge({"lr": 0.1}, space) == []


def test_a_reported_trial_can_select_nothing(job: Job) -> None:
    with pytest.raises(SelectionError, match="never by a reported trial"):
        score({}, [result(attrs.evolve(job, purpose="trial"), 0.5)], Selection())


def test_folds_cover_everything_but_the_test_part_once(tmp_path: Path) -> None:
    data = digits_with_official_test_part()
    generator = load_plugins().registry.create("generator", "mcl-skewed", {})
    make = {"seed": 0, "validation": 0.1, "test": 0.2, "clean": ()}
    parts = [make_problem(data, generator, fold=(i, 4), **make) for i in range(4)]
    sizes = [len(part.validation_x) for part in parts]
    assert sum(sizes) == 1500
    assert max(sizes) - min(sizes) <= 1
    assert all(len(part.train_x) + len(part.validation_x) == 1500 for part in parts)
    whole = make_problem(data, generator, **make)
    # The same sets, cut differently: folds and hold-out agree on how many labels there are in all.
    held_out = whole.validation_candidates
    assert held_out is not None
    total = int(whole.train_candidates.sizes.sum() + held_out.sizes.sum())
    for part in parts:
        assert part.validation_candidates is not None
        assert int(part.train_candidates.sizes.sum() + part.validation_candidates.sizes.sum()) == total
    with pytest.raises(ConfigError, match="fold 4 of 4"):
        make_problem(data, generator, fold=(4, 4), **make)


def test_the_oracle_is_called_one_wherever_it_appears(
    small: dict[str, Any], run_in: Callable[..., list[CellState]]
) -> None:
    from wsl_toolkit.studies.report.build import as_text, build_report

    small["selection"] = {"rule": "oracle-accuracy"}
    small["methods"] = ["cc"]
    states = run_in(small)
    report = build_report(from_dict(small, "test"), states)
    assert report.tables
    assert all("ORACLE" in table.title for table in report.tables)
    for form in ("markdown", "latex", "html"):
        assert as_text(report, form).count("ORACLE") >= len(report.tables)
    assert "ORACLE" in as_text(report, "csv").splitlines()[1]


def test_a_search_in_which_everything_diverges_says_so_and_stops_no_other_cell(
    small: dict[str, Any], run_in: Callable[..., list[CellState]], tmp_path: Path
) -> None:
    small["methods"] = [{"estimator": "mcl", "label": "wild", "search": {"lr": [1e30]}}, "cc"]
    with pytest.raises(StudyError, match=r"wild .* all 1 points of the search diverged"):
        run_in(small)
    study = from_dict(small, "test")
    wild, tame = (
        cell_state(cell, Results(StudyFolder(tmp_path, "small"), load_plugins().registry), load_plugins().registry)
        for cell in study.cells()
    )
    assert not wild.done
    assert tame.done


def test_a_study_without_a_held_out_part_is_refused_before_any_work(
    small: dict[str, Any], run_in: Callable[..., list[CellState]]
) -> None:
    small["training"] = {**small["training"], "validation": 0.0}
    with pytest.raises(ConfigError, match="needs a held-out part"):
        run_in(small, executor=Inline())
    small["selection"] = {"folds": 2}
    assert all(state.done for state in run_in(small))
    job = make_job(
        next(from_dict(small, "t").cells()).config({}, seed=0, epochs=1, registry=load_plugins().registry), "trial"
    )
    assert job.config["validation"] == 0.0
