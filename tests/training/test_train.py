"""`train`: one job or many, alone or stacked, stopped, resumed, ended early; every job keeps its own trajectory."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

from wsl_toolkit.components import Backbone
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import CheckpointError, ConfigError, DivergedError, InterruptedRunError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.checkpoints import Checkpoints, Place
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.train import JobListener, Trained, TrainingJob, train, why_one_by_one
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

REGISTRY = load_plugins().registry
LINEAR: Backbone = REGISTRY.create("backbone", "linear", {})
SMALL_MLP: Backbone = REGISTRY.create("backbone", "mlp", {"widths": (12,)})
SHORT = Training(epochs=4, batch_size=32, lr=0.1, device="cpu", validation=0.2)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Problem]:
    data = REGISTRY.create("dataset", "digits", {}).load(tmp_path_factory.mktemp("none"))
    generator = REGISTRY.create("generator", "mcl-skewed", {})
    known: dict[int, Problem] = {}

    def problem(seed: int) -> Problem:
        if seed not in known:
            known[seed] = make_problem(data, generator, seed=seed, validation=0.2, test=0.3)
        return known[seed]

    return problem


def a_job(problem: Problem | Callable[[], Problem], seed: int = 0, **changes: Any) -> TrainingJob:
    settings = {name: value for name, value in changes.items() if name in attrs.fields_dict(Training)}
    others = {name: value for name, value in changes.items() if name not in settings}
    given = {"estimator": REGISTRY.create("estimator", others.pop("method", "ppl"), {}), "backbone": LINEAR, **others}
    return TrainingJob(problem=problem, training=attrs.evolve(SHORT, **settings), seed=seed, **given)


def curves(trained: Trained) -> list[dict[str, float]]:
    return [record.metrics for record in trained.records]


def assert_close(one: Trained, other: Trained) -> None:
    assert len(one.records) == len(other.records)
    for mine, yours in zip(curves(one), curves(other), strict=True):
        assert mine == pytest.approx(yours, rel=1e-3, abs=5e-3)


def assert_same_bits(one: Trained, other: Trained) -> None:
    assert curves(one) == curves(other)
    assert (one.best_epoch, one.ended_by) == (other.best_epoch, other.ended_by)
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name


@pytest.mark.parametrize("backbone", [LINEAR, SMALL_MLP])
def test_seeds_are_trained_as_one_stack_and_each_as_if_it_were_alone(
    problems: Callable[[int], Problem], backbone: Backbone
) -> None:
    together = train([a_job(problems(seed), seed, backbone=backbone) for seed in (3, 1, 2)])
    assert [each.stacked for each in together] == [3, 3, 3]
    assert [each.seed for each in together] == [3, 1, 2]
    for each in together:
        (alone,) = train([a_job(problems(each.seed), each.seed, backbone=backbone)])
        assert alone.stacked == 1
        assert_close(each, alone)
        assert (each.candidates_hash, each.mean_size) == (alone.candidates_hash, alone.mean_size)


def test_seeds_share_a_stack_of_adams_whose_cycle_goes_from_step_to_step(
    problems: Callable[[int], Problem],
) -> None:
    cycle = {"every": "step", "momentum": "cycled"}
    given: dict[str, Any] = {"optimizer": "adam", "scheduler": "one-cycle", "scheduler_options": cycle, "lr": 0.05}
    together = train([a_job(problems(seed), seed, **given) for seed in (0, 1)])
    assert [each.stacked for each in together] == [2, 2]
    (alone,) = train([a_job(problems(1), 1, **given)])
    assert_close(together[1], alone)
    (by_epoch,) = train([a_job(problems(1), 1, **given | {"scheduler_options": {}})])
    assert curves(by_epoch) != curves(alone)


def test_jobs_that_cannot_be_stacked_are_trained_one_by_one_and_the_reason_is_said(
    problems: Callable[[int], Problem],
) -> None:
    notes: list[str] = []
    jobs = [a_job(problems(0), optimizer="rmsprop", lr=lr) for lr in (0.01, 0.001)]
    found = train(jobs, note=notes.append)
    assert [each.stacked for each in found] == [1, 1]
    assert notes == ["2 models train one by one: only sgd, adam and adamw step many models at once"]
    assert why_one_by_one(jobs) == "only sgd, adam and adamw step many models at once"
    assert why_one_by_one([a_job(problems(0), lr=lr) for lr in (0.1, 0.01)]) is None


def test_a_mixture_of_methods_comes_back_in_the_order_in_which_it_was_given(
    problems: Callable[[int], Problem],
) -> None:
    jobs = [
        a_job(problems(0), method="cc"),
        a_job(problems(0)),
        a_job(problems(0), method="cc", lr=0.01),
        a_job(problems(0), backbone=SMALL_MLP),
    ]
    found = train(jobs)
    assert [each.stacked for each in found] == [2, 1, 2, 1]
    for job, each in zip(jobs, found, strict=True):
        assert_close(each, train([job])[0])


def test_problems_are_loaded_when_their_turn_comes(problems: Callable[[int], Problem]) -> None:
    said: list[str] = []

    class Says(JobListener):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_train_end(self, trained: Trained) -> None:
            said.append(f"{self.name} ended")

    def load(name: str) -> Callable[[], Problem]:
        def get() -> Problem:
            said.append(f"{name} loaded")
            return problems(0)

        return get

    train([a_job(load(name), method="cl-ga" if name == "b" else "ppl", listener=Says(name)) for name in "ab"])
    assert said == ["a loaded", "a ended", "b loaded", "b ended"]


def test_training_leaves_the_global_random_state_alone(problems: Callable[[int], Problem]) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train([a_job(problems(seed), seed) for seed in (0, 1)])
    assert torch.equal(torch.get_rng_state(), before)


# ------------------------------------------------------------------------------------- stopping and going on


class StopAfter(StopRequest):
    """A request that comes after so many looks at it, that is, so many batches."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def __call__(self) -> bool:
        self.left -= 1
        if self.left <= 0:
            self.signal = 2
        return super().__call__()


def saved_in(folder: Path, number: int, every: int | None = None) -> Callable[[Problem], TrialCheckpoints]:
    return lambda problem: TrialCheckpoints(Checkpoints(folder / str(number), every=every), {"job": str(number)})


@pytest.mark.parametrize("method", ["ppl", "proden", "cc"])
@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2), (0, 0, 0)], ids=["alone", "own orders", "one order"])
def test_training_that_is_stopped_anywhere_goes_on_to_the_same_bits(
    problems: Callable[[int], Problem], method: str, seeds: tuple[int, ...], tmp_path: Path
) -> None:
    def jobs(folder: Path) -> list[TrainingJob]:
        return [
            a_job(problems(seed), seed, method=method, lr=0.1 / (place + 1), checkpoints=saved_in(folder, place))
            for place, seed in enumerate(seeds)
        ]

    whole = train(jobs(tmp_path / "whole"))
    for looks in (1, 7, 60, 130):
        stopped = tmp_path / f"stopped after {looks} looks"
        with pytest.raises(InterruptedRunError):
            train(jobs(stopped), stop=StopAfter(looks))
        notes: list[str] = []
        resumed = train(jobs(stopped), note=notes.append)
        assert notes == []
        for one, other in zip(whole, resumed, strict=True):
            assert_same_bits(one, other)


@pytest.mark.parametrize(
    "wrong",
    [
        {"identity": 5}, {"epoch": "x"}, {"records": [{}]}, {"records": None}, {"code": torch.zeros(3)},
        {"seconds": None}, {"identity": {"job": torch.zeros(3)}},
        {"execution": {"threads": 1, "torch": torch.zeros(3)}},
        {"records": [{"epoch": 1, "metrics": {"train/risk": "x"}, "seconds": 1.0}]}, {"execution": {"threads": -1}},
    ],
    ids=str,
)  # fmt: skip
def test_a_checkpoint_that_does_not_hold_what_all_hold_is_refused_in_a_line(
    problems: Callable[[int], Problem], tmp_path: Path, wrong: dict[str, Any]
) -> None:
    job = a_job(problems(0), epochs=1, checkpoints=saved_in(tmp_path, 0))
    train([job])
    files = Checkpoints(tmp_path / "0")
    state = files.newest()
    assert state is not None
    files.save(Place(epoch=2), {**state, **wrong})
    with pytest.raises(CheckpointError, match=f"the checkpoint is damaged: its '{next(iter(wrong))}' is not what"):
        train([attrs.evolve(job, training=attrs.evolve(job.training, epochs=3))])


@pytest.mark.parametrize("lost", [1, 2], ids=["the newest", "all, as before the first is complete"])
def test_a_stack_whose_members_were_saved_at_different_epochs_goes_back_to_where_all_were(
    problems: Callable[[int], Problem], tmp_path: Path, lost: int
) -> None:
    """As after a kill between two of the files that one checkpoint of a stack consists of."""

    def jobs(folder: Path) -> list[TrainingJob]:
        return [a_job(problems(s), s, epochs=6, checkpoints=saved_in(folder, s, every=1)) for s in (0, 1, 2)]

    whole = train(jobs(tmp_path / "whole"))
    with pytest.raises(InterruptedRunError):
        train(jobs(tmp_path / "killed"), stop=StopAfter(90))
    saved = sorted((tmp_path / "killed" / "1").glob("epoch-*"))
    assert len(saved) == 2
    for path in saved[-lost:]:
        path.unlink()
    resumed = train(jobs(tmp_path / "killed"))
    assert [each.stacked for each in resumed] == [3, 3, 3]
    for one, other in zip(whole, resumed, strict=True):
        assert_same_bits(one, other)


def test_going_on_in_another_stack_is_said(problems: Callable[[int], Problem], tmp_path: Path) -> None:
    notes: list[str] = []

    def checkpoints(number: int) -> Callable[[Problem], TrialCheckpoints]:
        files = Checkpoints(tmp_path / str(number))
        return lambda problem: TrialCheckpoints(files, {"job": str(number)}, notes.append)

    with pytest.raises(InterruptedRunError):
        train([a_job(problems(s), s, checkpoints=checkpoints(s)) for s in (0, 1)], stop=StopAfter(50))
    train([a_job(problems(0), 0, checkpoints=checkpoints(0))])
    assert [note for note in notes if "stacked models was 2 and is 1 now" in note]


# ------------------------------------------------------------------------------- early stopping and best epochs


def literal_best(values: list[float], patience: int) -> tuple[int, int]:
    """The best epoch and the last one, by the definition: stop `patience` epochs after the last improvement."""
    best, best_value = 0, -math.inf
    for epoch, value in enumerate(values, start=1):
        if value > best_value:
            best, best_value = epoch, value
        if patience and epoch - best >= patience:
            return best, epoch
    return best, len(values)


@pytest.fixture(scope="module")
def long_curves(problems: Callable[[int], Problem]) -> list[list[dict[str, float]]]:
    """What three trainings go through that nothing stops."""
    return [curves(each) for each in train([a_job(problems(seed), seed, epochs=25) for seed in (0, 1, 2)])]


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_patience_and_best_epoch_are_what_their_definitions_say(
    problems: Callable[[int], Problem], long_curves: list[list[dict[str, float]]], patience: int
) -> None:
    values = [[m["validation/covering_rate"] for m in each] for each in long_curves]
    stopping = [a_job(problems(seed), seed, epochs=25, patience=patience, keep="best") for seed in (0, 1, 2)]
    found = train(stopping)
    for own, each in zip(values, found, strict=True):
        best, last = literal_best(own, patience)
        assert (each.best_epoch, len(each.records)) == (best, last)
        assert each.ended_by == ("patience" if last < 25 else "")
        assert each.final == each.records[best - 1].metrics
    assert len({len(each.records) for each in found}) > 1, "the case should have members that stop at different epochs"


def test_the_model_that_is_kept_is_the_best_epochs(problems: Callable[[int], Problem]) -> None:
    from wsl_toolkit.training.engine import predict
    from wsl_toolkit.training.formulas import accuracy

    problem = problems(0)
    assert problem.clean.test is not None
    assert isinstance(problem.test_x, torch.Tensor)
    (kept,) = train([a_job(problem, epochs=20, lr=1.0, keep="best")])
    assert kept.best_epoch is not None
    assert kept.best_epoch < len(kept.records) == 20
    measured = float(accuracy(predict(kept.model, problem.test_x), problem.clean.test))
    assert measured == kept.final["test/accuracy"] == kept.records[kept.best_epoch - 1].metrics["test/accuracy"]


@pytest.fixture(scope="module", params=[(0,), (0, 1, 2)], ids=["alone", "stacked"])
def stopping_early(
    request: pytest.FixtureRequest, problems: Callable[[int], Problem], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Callable[[Path], list[TrainingJob]], list[Trained]]:
    """Jobs that end early and keep their checkpoints in a folder, and what becomes of them if nobody stops them."""

    def jobs(folder: Path) -> list[TrainingJob]:
        early: dict[str, Any] = {"epochs": 25, "patience": 2, "keep": "best"}
        return [a_job(problems(s), s, checkpoints=saved_in(folder, s), **early) for s in request.param]

    return jobs, train(jobs(tmp_path_factory.mktemp("whole")))


@pytest.mark.parametrize("looks", [60, 130, 200])
def test_early_stopping_is_resumed_to_the_same_bits(
    stopping_early: tuple[Callable[[Path], list[TrainingJob]], list[Trained]], looks: int, tmp_path: Path
) -> None:
    jobs, whole = stopping_early
    with pytest.raises(InterruptedRunError):
        train(jobs(tmp_path / "stopped"), stop=StopAfter(looks))
    for one, other in zip(whole, train(jobs(tmp_path / "stopped")), strict=True):
        assert_same_bits(one, other)


def test_clean_labels_cannot_be_monitored(problems: Callable[[int], Problem]) -> None:
    with pytest.raises(ConfigError, match="would let clean labels choose the model"):
        train([a_job(problems(0), patience=1, monitor="test/accuracy")])
    with pytest.raises(ConfigError, match="Did you mean 'validation/risk'"):
        train([a_job(problems(0), patience=1, monitor="validation/risks")])


def test_a_metric_that_is_not_measured_cannot_be_monitored(tmp_path: Path) -> None:
    data = REGISTRY.create("dataset", "digits", {}).load(tmp_path)
    problem = make_problem(data, REGISTRY.create("generator", "cl", {}), seed=0, validation=0.0, test=0.3)
    with pytest.raises(ConfigError, match="is not measured in this run"):
        train([a_job(problem, patience=3)])


# ------------------------------------------------------------------------------------- divergence and callbacks


def test_a_model_that_diverges_raises_or_is_returned_with_its_error(problems: Callable[[int], Problem]) -> None:
    jobs = [a_job(problems(0), method="mcl", lr=lr) for lr in (0.01, 1e30)]
    with pytest.raises(DivergedError):
        train(jobs)
    sound, broken = train(jobs, keep_diverged=True)
    assert sound.error is None
    assert len(sound.records) == SHORT.epochs
    assert isinstance(broken.error, DivergedError)
    assert len(broken.records) < SHORT.epochs
    assert_close(sound, train(jobs[:1])[0])


@pytest.mark.parametrize("others", [0, 2])
def test_a_listener_may_end_its_training_and_no_other(problems: Callable[[int], Problem], others: int) -> None:
    class EndsAfterTwo(JobListener):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def on_train_start(self, problem: Problem, checkpoints: TrialCheckpoints) -> None:
            self.heard.append("start")

        def on_epoch_end(self, record: EpochRecord) -> bool:
            self.heard.append(record.epoch)
            return record.epoch == 2

        def on_train_end(self, trained: Trained) -> None:
            self.heard.append(trained.ended_by)

    listener = EndsAfterTwo()
    found = train([a_job(problems(s), s) for s in range(1, others + 1)] + [a_job(problems(0), listener=listener)])
    assert listener.heard == ["start", 1, 2, "listener"]
    assert [len(each.records) for each in found] == [4] * others + [2]
