"""Which jobs go to a worker together, and in which order."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.description import Cell
from wsl_toolkit.studies.jobs import Job, Purpose, make_job
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.queue import JobQueue, divided


@pytest.fixture
def cell(small: dict[str, Any]) -> Cell:
    return next(from_dict(small, "test").cells())


def job(cell: Cell, purpose: Purpose = "selection", alpha: float = 0.9, **training: Any) -> Job:
    of_job = {name: training.pop(name) for name in ("fold", "folds") if name in training}
    config = cell.config({"lr": 0.1, "generator.alpha": alpha}, seed=0, epochs=2, registry=load_plugins().registry)
    return make_job(attrs.evolve(config, training=attrs.evolve(config.training, **training)), purpose, **of_job)


def taken(queue: JobQueue, workers: int = 1, **options: Any) -> list[tuple[Job, ...]]:
    found = []
    while queue:
        found.append(queue.take(workers, **options))
    return found


def test_only_jobs_that_share_everything_but_rates_and_seeds_are_grouped(cell: Cell) -> None:
    rates = [job(cell, lr=lr, weight_decay=w) for lr in (0.1, 0.2) for w in (0.0, 0.1)]
    trials = [job(cell, "trial", seed=seed) for seed in (0, 1, 2)]
    others = [job(cell, epochs=9), job(cell, fold=1, folds=2), job(cell, seed=1), job(cell, alpha=0.8)]
    queue = JobQueue()
    queue.add([*rates, *others, *trials], family=0, cell=0)
    assert taken(queue) == [tuple(rates), *((other,) for other in others), tuple(trials)]


def test_jobs_that_do_better_alone_come_back_one_by_one_and_so_do_later_ones_of_their_kind(cell: Cell) -> None:
    queue = JobQueue()
    rates = [job(cell, lr=lr) for lr in (0.1, 0.2, 0.3)]
    queue.add(rates[:2], family=0, cell=0)
    queue.take_apart(queue.take(1), family=0, cell=0)
    queue.add(rates[2:], family=0, cell=0)
    assert taken(queue) == [(each,) for each in rates]


def test_trials_wait_for_the_searches_of_their_family_and_go_together_seed_by_seed(cell: Cell) -> None:
    queue = JobQueue()
    first, second = ([job(cell, "trial", alpha, seed=seed) for seed in (0, 1)] for alpha in (0.9, 0.8))
    queue.add(first, family=0, cell=0)
    search = job(cell, alpha=0.8)
    queue.add([search], family=0, cell=4)
    assert queue.take(1, searching={0}) == (search,)
    queue.add(second, family=0, cell=4)
    assert taken(queue) == [(first[0], second[0], first[1], second[1])]


def test_trials_do_not_wait_where_a_worker_would_be_idle(cell: Cell) -> None:
    queue = JobQueue()
    trials = tuple(job(cell, "trial", seed=seed) for seed in (0, 1))
    queue.add(trials, family=0, cell=0)
    assert queue.take(1, searching={0}) == trials


def test_families_come_one_after_the_other_and_each_begins_with_its_searches(cell: Cell) -> None:
    queue = JobQueue()
    for family, alpha in enumerate((0.9, 0.8, 0.7)):
        queue.add([job(cell, "trial", alpha, epochs=2 + family), job(cell, alpha=alpha)], family=family, cell=family)
    order = [(each.purpose, each.config["generator"]["alpha"]) for (each,) in taken(queue)]
    assert order == [(purpose, alpha) for alpha in (0.9, 0.8, 0.7) for purpose in ("selection", "trial")]


def test_a_job_that_two_cells_want_is_done_once(cell: Cell) -> None:
    queue = JobQueue()
    queue.add([job(cell)], family=0, cell=0)
    queue.add([job(cell)], family=1, cell=1)
    assert len(queue) == 1


def test_a_large_group_is_divided_only_where_workers_would_be_idle(cell: Cell) -> None:
    whole = tuple(job(cell, lr=0.001 * (i + 1)) for i in range(36))
    assert divided([whole], 1) == [whole]
    sizes = {workers: [len(part) for part in divided([whole], workers)] for workers in (2, 3, 4, 100)}
    assert sizes == {2: [18, 18], 3: [9, 9, 18], 4: [9, 9, 9, 9], 100: [9, 9, 9, 9]}
    assert tuple(each for part in divided([whole], 4) for each in part) == whole
    assert divided([], 4) == []
