"""Jobs: known by their content, and nothing but their content."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.description import Cell
from wsl_toolkit.studies.jobs import DECISIVE, FINISHED, JobResult, job_from_dict, make_job, result_from_json
from wsl_toolkit.studies.parsing import from_dict


@pytest.fixture
def cell(small: dict[str, Any]) -> Cell:
    return next(from_dict(small, "test").cells())


def config_of(cell: Cell, **changes: Any) -> Any:
    config = cell.config({"lr": 0.1}, seed=0, epochs=2, registry=load_plugins().registry)
    return attrs.evolve(config, training=attrs.evolve(config.training, **changes))


def test_the_same_content_is_the_same_job_and_a_different_one_is_not(cell: Cell) -> None:
    job = make_job(config_of(cell), "selection")
    assert make_job(config_of(cell), "selection").id == job.id
    others = [
        make_job(config_of(cell), "trial"),
        make_job(config_of(cell, lr=0.2), "selection"),
        make_job(config_of(cell, seed=1), "selection"),
        make_job(config_of(cell, epochs=3), "selection"),
        make_job(config_of(cell), "selection", data="another digest"),
        make_job(config_of(cell), "selection", fold=1, folds=2),
        make_job(config_of(cell), "selection", oracle=True),
        make_job(config_of(cell), "selection", peers=("a",)),
    ]
    assert len({job.id, *(other.id for other in others)}) == 1 + len(others)


def test_where_and_how_often_it_runs_does_not_change_a_job(cell: Cell) -> None:
    assert make_job(config_of(cell), "trial").id == make_job(config_of(cell, device="cuda:1", trials=9), "trial").id


def test_data_is_known_by_its_digest_and_not_by_where_it_lies(small: dict[str, Any]) -> None:
    registry = load_plugins().registry

    def job(path: str, digest: str) -> str:
        small["settings"] = [{"dataset": {"name": "npz", "path": path}, "backbone": "linear"}]
        config = next(from_dict(small, "t").cells()).config({}, seed=0, epochs=1, registry=registry)
        return make_job(config, "trial", data=digest).id

    assert job("here.npz", "d1") == job("there.npz", "d1")
    assert job("here.npz", "d1") != job("here.npz", "d2")


def test_a_training_setting_that_is_new_and_left_alone_does_not_change_jobs(cell: Cell) -> None:
    job = make_job(config_of(cell), "trial")
    roles = {"dataset", "generator", "estimator", "backbone"}
    assert set(job.config) - roles == set(DECISIVE)


def test_defaults_written_out_are_the_same_job(small: dict[str, Any]) -> None:
    registry = load_plugins().registry
    explicit = {**small, "training": {**small["training"], "momentum": 0.9, "scheduler": "none"}}
    jobs = [
        make_job(next(from_dict(d, "t").cells()).config({}, seed=0, epochs=1, registry=registry), "trial")
        for d in (small, explicit)
    ]
    assert jobs[0].id == jobs[1].id


def test_jobs_and_results_survive_writing_and_reading(cell: Cell) -> None:
    job = make_job(config_of(cell), "selection", fold=1, folds=3, peers=("a", "b"))
    assert job_from_dict(json.loads(json.dumps(job.to_dict()))) == job
    result = JobResult(job=job, status=FINISHED, history={"train/risk": [1.5, 0.1 + 0.2]}, seconds=1.0, ended_at=5)
    assert result_from_json(result.to_json()) == result
