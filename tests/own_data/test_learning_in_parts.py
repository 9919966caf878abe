"""The parts of one's own data that choices are fitted to: trained together, judged kind by kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.own_data.conftest import ZOO
from tests.own_data.test_trees import quadrants
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import fitting, learning, serving, trees
from wsl_toolkit.own_data.learning import Learner, Quiet, Standing
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training import stacking
from wsl_toolkit.training.engine import EpochRecord

REGISTRY = load_plugins().registry


@pytest.fixture(scope="module")
def data() -> Data:
    x, y, sets = quadrants(300)
    return Data(name="made", x=x.double(), candidates=sets, num_classes=4, known_y=y)


class Hears(Quiet):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.records: list[EpochRecord] = []
        self.standings: list[Standing] = []

    def epoch(self, record: EpochRecord, trial: int = 1) -> None:
        self.records.append(record)

    def judged(self, standing: Standing) -> None:
        self.standings.append(standing)


def learner_of(data: Data, **changes: Any) -> Learner:
    return Learner(data=data, registry=REGISTRY, estimator=REGISTRY.create("estimator", "cc", {}), seed=0, **changes)


def linear_choices(**chosen: Any) -> list[learning.NetworkChoice]:
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), epochs=4, weight_decay=1e-3, **chosen)
    linear = REGISTRY.create("backbone", "linear", {})
    return [learning.NetworkChoice(backbone=linear, training=training) for training in options.trainings(100)]


def test_folds_learn_together_what_each_would_alone(data, monkeypatch):
    stacks = []
    original = stacking.Stack.__init__

    def counted(self: Any, trainers: Any, *args: Any, **named: Any) -> None:
        stacks.append(len(trainers))
        original(self, trainers, *args, **named)

    monkeypatch.setattr(stacking.Stack, "__init__", counted)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    parts = [(order[: 100 * (i + 1)][-100:], order[-50:]) for i in range(2)]
    choices = linear_choices()
    together = learner_of(data).fit(choices, parts)
    assert stacks == [len(parts) * len(choices)], "the folds of a small table are one stack"
    for part, made in zip(parts, together, strict=True):
        (alone,) = learner_of(data).fit(choices, [part])
        for one, other in zip(made, alone, strict=True):
            assert one.choice == other.choice
            torch.testing.assert_close(one.logits[0], other.logits[0], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0][0].logits[0], together[1][0].logits[0], atol=1e-2), "they are other examples"


@pytest.mark.parametrize(("chosen", "looks"), [({}, False), ({"keep": "best"}, True), ({"patience": 3}, True)])
def test_held_out_examples_are_looked_at_after_each_epoch_only_by_who_watches_them(data, chosen, looks):
    heard = Hears()
    parts = [(torch.arange(200), torch.arange(200, 300))]
    learner_of(data, listener=heard).fit(linear_choices(**chosen), parts)
    assert heard.records
    assert all(("validation/covering_rate" in record.metrics) == looks for record in heard.records)


def test_each_kind_of_model_is_judged_as_soon_as_it_is_there(data):
    heard = Hears()
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), budget="quick")
    fitted = fitting.fit(data, REGISTRY, options, torch.arange(300), heard)
    assert [standing.model for standing in heard.standings] == ["linear", trees.NAME]
    assert [standing.left for standing in heard.standings] == [1, 0]
    losses = {
        name: min(t["set_log_loss"] for t in fitted.tried if t["model"] == name) for name in ("linear", trees.NAME)
    }
    assert [standing.loss for standing in heard.standings] == [losses["linear"], losses[trees.NAME]]
    first, last = (standing.covering_rate for standing in heard.standings)
    assert first < 0.8 < last <= 1, "no linear model tells quadrants apart"


def test_what_is_said_last_is_of_the_best_though_it_came_first():
    x, _, sets = quadrants(300)
    sums = x @ torch.tensor([[1.0, 1.0], [1.0, -1.0], [0.5, 0.25]])
    classes = (sums > 0).long() @ torch.tensor([2, 1])  # told by two straight lines across all columns
    own = CandidateSets.from_mask(torch.nn.functional.one_hot(classes, 4).bool() | (sets.mask() & (x[:, :1] > 0)))
    made = Data(name="lines", x=x.double(), candidates=own, num_classes=4)
    heard = Hears()
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), budget="quick")
    fitted = fitting.fit(made, REGISTRY, options, torch.arange(300), heard)
    assert [standing.model for standing in heard.standings] == ["linear", "linear"]
    assert heard.standings[-1].loss == min(each["set_log_loss"] for each in fitted.tried)


def test_the_result_is_on_the_screen_before_the_model_is_written(wsl, zoo, monkeypatch):
    def full(*args: Any, **named: Any) -> None:
        raise ConfigError("the disk is full")

    monkeypatch.setattr(serving, "write_folder", full)
    result = wsl("fit", zoo, *ZOO, "--budget", "quick", "--out", "model", code=2)
    assert "so far linear: log loss of held-out sets" in result.stderr
    assert "covering rate" in result.stdout
    assert "the disk is full" in result.stderr
    assert "The model is in" not in result.output
