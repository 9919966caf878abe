"""Callbacks: what they hear, what they may log and end, and that clean labels are kept from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import torch

from wsl_toolkit import Callback
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import CheckpointError, ConfigError, InterruptedRunError, PluginError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.callbacks import Epoch, TrainingStart
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.jobs import JobListener, Trained, TrainingJob
from wsl_toolkit.training.metrics import METRICS
from wsl_toolkit.training.train import train
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

REGISTRY = load_plugins().registry


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    data = REGISTRY.create("dataset", "digits", {}).load(tmp_path_factory.mktemp("none"))
    generator = REGISTRY.create("generator", "mcl-skewed", {})
    return make_problem(data, generator, seed=0, validation=0.2, test=0.3)


def a_job(problem: Problem, *callbacks: Callback, **changes: Any) -> TrainingJob:
    given = {name: value for name, value in changes.items() if name in ("listener", "checkpoints")}
    settings = {name: value for name, value in changes.items() if name not in given}
    return TrainingJob(
        problem=problem,
        estimator=REGISTRY.create("estimator", "ppl", {}),
        backbone=REGISTRY.create("backbone", "linear", {}),
        training=Training(**{"epochs": 4, "batch_size": 64, "lr": 0.1, "device": "cpu", **settings}),
        seed=0,
        callbacks=callbacks,
        **given,
    )


class Hears(Callback):
    """Remembers all that it is told."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.about: TrainingStart | None = None

    def on_train_start(self, about: TrainingStart) -> None:
        self.about = about
        self.heard.append("start")

    def on_epoch_end(self, record: Epoch) -> bool | None:
        self.heard.append((record.epoch, dict(record.metrics)))
        return None

    def on_train_end(self, trained: Trained) -> None:
        self.heard.append(trained)


class HearsAll(Hears):
    reads_clean_labels: ClassVar[bool] = True


class Counts(Callback):
    """Logs how many epochs it has seen, which a checkpoint must carry."""

    def __init__(self, end_after: int | None = None) -> None:
        self.seen = 0
        self.total = torch.zeros(())
        self.end_after = end_after

    def on_epoch_end(self, record: Epoch) -> bool:
        self.seen += 1
        self.total += record.metrics["train/risk"]
        record.log("counts/seen", self.seen)
        record.log("counts/total", self.total)
        return self.seen == self.end_after

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen, self.total = state["seen"], state["total"]


CLEAN = {metric.name for metric in METRICS.values() if metric.reads == "clean labels"}


def test_a_callback_hears_of_the_start_of_every_epoch_and_of_the_end_but_of_no_clean_label(problem: Problem) -> None:
    blind, seeing = Hears(), HearsAll()
    (trained,) = train([a_job(problem, blind, seeing)])
    assert blind.about is not None
    assert seeing.about is not None
    assert blind.about.clean is None
    assert not [value for value in attrs.asdict(blind.about, recurse=False).values() if isinstance(value, Problem)]
    assert seeing.about.clean is problem.clean
    assert blind.about.candidates is problem.train_candidates
    assert [each[0] for each in blind.heard[1:-1]] == [1, 2, 3, 4]
    assert not CLEAN & set(blind.heard[1][1])
    assert "validation/covering_rate" in blind.heard[1][1]
    assert "test/accuracy" in seeing.heard[1][1]
    assert seeing.heard[-1] is trained
    assert not [name for record in blind.heard[-1].records for name in record.metrics if name in CLEAN]
    assert blind.heard[-1].model is trained.model


def test_what_a_callback_logs_is_in_the_epochs_record_and_its_figures_reach_the_listener(problem: Problem) -> None:
    import matplotlib.pyplot as plt

    class Draws(Callback):
        def on_epoch_end(self, record: Epoch) -> None:
            if record.epoch == 2:
                figure = plt.figure()
                plt.close(figure)
                record.log_figure("mine/epoch", figure)

    class Keeps(JobListener):
        def __init__(self) -> None:
            self.names: list[str] = []
            self.logged: list[float] = []

        def on_figure(self, name: str, figure: Any) -> None:
            self.names.append(name)

        def on_epoch_end(self, record: Any) -> None:
            self.logged.append(record.metrics["counts/seen"])

    listener = Keeps()
    (trained,) = train([a_job(problem, Counts(), Draws(), listener=listener)])
    assert [record.metrics["counts/seen"] for record in trained.records] == [1, 2, 3, 4] == listener.logged
    assert listener.names == ["mine/epoch"]


@pytest.mark.parametrize("stacked", [False, True])
def test_a_callback_ends_its_own_training_and_says_who_did(problem: Problem, stacked: bool) -> None:
    others = [a_job(problem, lr=0.01), a_job(problem, lr=0.02)] if stacked else []
    *rest, found = train([*others, a_job(problem, Counts(end_after=2), Hears())])
    assert found.stacked == (3 if stacked else 1)
    assert len(found.records) == 2
    assert found.ended_by == "callback Counts"
    assert [len(each.records) for each in rest] == [4] * len(others)


def test_a_callback_that_reads_clean_labels_neither_ends_a_training_nor_logs_under_a_blind_name(
    problem: Problem,
) -> None:
    class Ends(Callback):
        reads_clean_labels: ClassVar[bool] = True

        def on_epoch_end(self, record: Epoch) -> bool:
            return record.metrics["test/accuracy"] > 0

    class Logs(Ends):
        def on_epoch_end(self, record: Epoch) -> bool:
            record.log("oracle/mine", 1.0)
            record.log("mine", 1.0)
            return False

    with pytest.raises(PluginError, match=r"'Ends' failed in on_epoch_end.*: it reads clean labels"):
        train([a_job(problem, Ends())])
    with pytest.raises(PluginError, match="must log 'mine' as oracle/mine"):
        train([a_job(problem, Logs())])


def test_a_callback_that_raises_is_named_with_its_place_and_its_error_is_kept(problem: Problem) -> None:
    class Breaks(Callback):
        name: ClassVar[str] = "breaks"

        def on_epoch_end(self, record: Epoch) -> None:
            raise KeyError("no such thing")

    with pytest.raises(PluginError, match=r"'breaks' failed in on_epoch_end, at test_callbacks.py:\d+: KeyE") as caught:
        train([a_job(problem, Breaks())])
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("train/risk", 1.0, "measured already"),
        ("test/accuracy", 1.0, "measured already"),
        ("../escape", 1.0, "a name to log under"),
        ("mine", "text", "must be a number"),
        ("mine", torch.zeros(2), "must be a number"),
    ],
)
def test_what_cannot_be_logged_is_refused(problem: Problem, name: str, value: Any, says: str) -> None:
    class Logs(Callback):
        def on_epoch_end(self, record: Epoch) -> None:
            record.log(name, value)

    with pytest.raises(PluginError, match=says):
        train([a_job(problem, Logs(), epochs=1)])


def test_only_objects_of_the_class_are_taken(problem: Problem) -> None:
    with pytest.raises(ConfigError, match="not the class Counts"):
        train([a_job(problem, Counts)])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"subclass of wsl_toolkit\.Callback"):
        train([a_job(problem, print)])  # type: ignore[arg-type]


def saved_in(folder: Path) -> Callable[[Problem], TrialCheckpoints]:
    return lambda problem: TrialCheckpoints(Checkpoints(folder, every=1), {"job": "a"})


def stopping_after(calls: int) -> StopRequest:
    class Soon(StopRequest):
        count = 0

        def __call__(self) -> bool:
            Soon.count += 1
            if Soon.count > calls:
                self.signal = 2
            return Soon.count > calls

    return Soon()


def test_a_resumed_callback_goes_on_with_its_state_to_the_same_records(problem: Problem, tmp_path: Path) -> None:
    (whole,) = train([a_job(problem, Counts())])
    with pytest.raises(InterruptedRunError):
        train([a_job(problem, Counts(), checkpoints=saved_in(tmp_path))], stop=stopping_after(40))
    again = Counts()
    (resumed,) = train([a_job(problem, again, checkpoints=saved_in(tmp_path))])
    assert again.seen == 4
    assert [each.metrics for each in resumed.records] == [each.metrics for each in whole.records]


def test_a_training_that_a_callback_ended_stays_ended_when_it_is_resumed(problem: Problem, tmp_path: Path) -> None:
    (first,) = train([a_job(problem, Counts(end_after=2), checkpoints=saved_in(tmp_path))])
    (again,) = train([a_job(problem, Counts(end_after=2), checkpoints=saved_in(tmp_path))])
    assert (len(first.records), first.ended_by) == (len(again.records), again.ended_by) == (2, "callback Counts")


def test_other_callbacks_than_those_of_the_checkpoint_are_refused(problem: Problem, tmp_path: Path) -> None:
    train([a_job(problem, Counts(), checkpoints=saved_in(tmp_path))])
    with pytest.raises(CheckpointError, match="the callbacks changed"):
        train([a_job(problem, Hears(), checkpoints=saved_in(tmp_path))])


def test_state_that_a_checkpoint_cannot_hold_is_refused_by_the_callbacks_name(problem: Problem, tmp_path: Path) -> None:
    class Keeps(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"path": [Path("here")]}

    with pytest.raises(PluginError, match=r"'Keeps' failed in state_dict: a checkpoint holds .* not PosixPath"):
        train([a_job(problem, Keeps(), checkpoints=saved_in(tmp_path))])


def test_records_with_logged_numbers_are_plain_json(problem: Problem) -> None:
    (trained,) = train([a_job(problem, Counts(), epochs=1)])
    assert json.loads(json.dumps(attrs.asdict(trained.records[0])))["metrics"]["counts/seen"] == 1.0
