"""What is tried follows from the data and the budget; held-out sets choose; what was chosen is saved whole."""

from __future__ import annotations

import attrs
import pytest
import torch

from tests.own_data.test_trees import quadrants
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import DataError
from wsl_toolkit.own_data import choices, fitting, model_file, trees
from wsl_toolkit.own_data.choices import NetworkChoice, Size, TreesChoice
from wsl_toolkit.own_data.model_file import Model
from wsl_toolkit.plugins.loading import load_plugins

REGISTRY = load_plugins().registry
SMALL = Size(examples=1600, features=16, classes=6)


def planned(size: Size, budget: str, whole: int | None = None) -> choices.Plan:
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), budget=budget)
    trainings = options.trainings(size.examples)
    return choices.plan(size, budget, REGISTRY, trainings, fits=3, whole=whole or size.examples)


def test_a_larger_budget_tries_more_and_all_that_the_smaller_one_is_for():
    counts = {}
    for budget in choices.BUDGETS:
        plan = planned(SMALL, budget)
        counts[budget] = {name: [c.name for c in plan.choices].count(name) for name in ("linear", "mlp", trees.NAME)}
        assert planned(SMALL, budget) == plan
    assert counts["quick"] == {"linear": 4, "mlp": 0, trees.NAME: 1}
    assert counts["normal"] == {"linear": 8, "mlp": 4, trees.NAME: 5}
    assert all(counts["thorough"][name] > counts["normal"][name] for name in counts["normal"])


def test_what_takes_too_long_or_too_much_memory_is_left_out_with_the_reason():
    many = planned(attrs.evolve(SMALL, classes=200), "normal")
    assert trees.NAME in dict(many.left_out)
    assert "linear" in {choice.name for choice in many.choices}
    large = planned(attrs.evolve(SMALL, examples=20_000, features=50), "normal", whole=1_000_000)
    assert dict(large.left_out)[trees.NAME] == "the data are too large for it"
    assert {choice.name for choice in large.choices} == {"linear"}


def test_settings_of_a_networks_training_mean_the_linear_model():
    for told in ({"lr": 0.1}, {"epochs": 3}, {"keep": "best"}, {"patience": 2}):
        options = fitting.options_for(REGISTRY, estimator=("cc", {}), **told)
        assert options.backbone == REGISTRY.create("backbone", "linear", {})
    assert fitting.options_for(REGISTRY, estimator=("cc", {})).backbone is None
    assert fitting.options_for(REGISTRY, estimator=("cc", {}), backbone=(trees.NAME, {})).trees


@pytest.fixture(scope="module")
def fitted() -> tuple[Data, fitting.Fitted, fitting.HeldOut]:
    x, y, sets = quadrants(300)
    data = Data(name="made", x=x.double(), candidates=sets, num_classes=4, known_y=y)
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), budget="quick")
    return data, *fitting.fit_and_report(data, REGISTRY, options)


def test_data_that_no_linear_model_fits_get_trees_and_the_table_says_why(fitted):
    _, found, report = fitted
    weightiest = found.choice.parts[0].choice
    assert isinstance(weightiest, TreesChoice)
    losses = {each["model"]: each["set_log_loss"] for each in found.tried}
    assert losses[trees.NAME] < losses["linear"]
    assert weightiest.settings()["max_iter"] % trees.STAGE == 0
    assert report.accuracy > 0.8
    assert report.calibration_error is not None
    assert report.calibration_error_before is not None


def test_a_model_of_trees_is_written_without_a_pickle_and_predicts_the_same(fitted, tmp_path):
    data, _, _ = fitted
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), backbone=(trees.NAME, {}), budget="quick")
    found, report = fitting.fit_and_report(data, REGISTRY, options)
    about = {**fitting.describe(options, found), "held_out": report.to_dict()}
    model_file.model_from(found, data, about).save(tmp_path / "m.safetensors")
    loaded = Model.load(tmp_path / "m.safetensors", REGISTRY)
    wanted = found.logits(data.x).softmax(1)
    torch.testing.assert_close(loaded.probabilities(data.x), wanted, rtol=0, atol=1e-6)
    assert loaded.temperature == found.temperature != 1.0
    assert loaded.about["backbone"]["name"] == trees.NAME


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "hot"])
def test_a_temperature_that_is_none_is_refused(fitted, tmp_path, wrong):
    data, found, report = fitted
    options = fitting.options_for(REGISTRY, estimator=("cc", {}))
    about = {**fitting.describe(options, found), "held_out": report.to_dict(), "temperature": wrong}
    model_file.model_from(found, data, about).save(tmp_path / "m.safetensors")
    with pytest.raises(DataError, match="not a complete model"):
        Model.load(tmp_path / "m.safetensors", REGISTRY)


def test_a_choice_that_diverges_loses_and_the_others_go_on():
    x, _, sets = quadrants(120)
    data = Data(name="made", x=x.double(), candidates=sets, num_classes=4)
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), epochs=2)
    learner = fitting._learner(data, REGISTRY, options, None, None)
    calm = NetworkChoice(backbone=options.backbone, training=options.trainings(100)[0])
    wild = attrs.evolve(calm, training=attrs.evolve(calm.training, lr=1e30))
    part = (torch.arange(100), torch.arange(100, 120))
    judged = fitting.judge(learner.fit([wild, calm], [part]), sets, [part[1]], True)
    assert judged[0].loss == float("inf")
    assert judged[1].loss < 5


def test_known_labels_are_learned_from_only_if_asked_and_never_those_of_the_report():
    x, y, sets = quadrants(120)
    known = torch.where(torch.arange(120) % 2 == 0, y, -1)
    data = Data(name="made", x=x.double(), candidates=sets, num_classes=4, known_y=known)
    asked = fitting.options_for(
        REGISTRY, estimator=("cc", {}), epochs=1, lr=0.1, weight_decay=0.0, use_known_labels=True
    )
    learned = fitting.training_data(data, asked).candidates
    assert torch.equal(learned.mask()[::2], torch.eye(4, dtype=torch.bool)[y[::2]])
    assert torch.equal(learned.mask()[1::2], sets.mask()[1::2])
    assert fitting.training_data(data, attrs.evolve(asked, use_known_labels=False)) is data

    order = torch.randperm(120, generator=fitting.stream(asked.seed, "split"))
    held_out, rest = order[:24], order[24:]
    plain, report = fitting.fit_and_report(data, REGISTRY, asked)
    for part, changes in ((held_out, False), (rest, True)):
        other = known.clone()
        other[part] = torch.where(known[part] >= 0, (known[part] + 1) % 4, -1)
        again, _ = fitting.fit_and_report(attrs.evolve(data, known_y=other), REGISTRY, asked)
        same = torch.equal(plain.logits(x.double()), again.logits(x.double()))
        assert same is not changes
    assert report.covering_rate == pytest.approx(
        float(sets.mask(held_out).gather(1, plain.logits(data.x, held_out).argmax(1, keepdim=True)).float().mean())
    )
