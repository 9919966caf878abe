"""Held-out sets choose an average of models, which is one model to whoever loads, exports or serves it."""

from __future__ import annotations

import json
import math

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from tests.own_data.test_trees import quadrants
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import DataError
from wsl_toolkit.own_data import averaging, calibration, export, fitting, model_file
from wsl_toolkit.own_data.averaging import ROUNDS, Average, AverageChoice, selected
from wsl_toolkit.own_data.description import title
from wsl_toolkit.own_data.model_file import TEXT, Model
from wsl_toolkit.own_data.tree_ensemble import TreeEnsemble
from wsl_toolkit.plugins.loading import load_plugins

REGISTRY = load_plugins().registry


def loss(weights: list[float], inside: list[list[float]]) -> float:
    """-1/n Σ_i log Σ_m w_m P_mi, written out."""
    n = len(inside[0])
    mixed = [sum(w * row[i] for w, row in zip(weights, inside, strict=True)) for i in range(n)]
    return -sum(math.log(max(each, averaging.TINY)) for each in mixed) / n


def slowly(inside: list[list[float]]) -> list[float]:
    """Ensemble selection with replacement, literally: add whichever helps most, keep the best of all rounds."""
    bag: list[int] = []
    best, found = math.inf, None
    for _ in range(ROUNDS):
        scores = []
        for place in range(len(inside)):
            tried = [*bag, place]
            scores.append(loss([tried.count(m) / len(tried) for m in range(len(inside))], inside))
        bag.append(min(range(len(inside)), key=lambda place: scores[place]))
        if scores[bag[-1]] < best - 1e-12:
            best, found = scores[bag[-1]], [bag.count(m) / len(bag) for m in range(len(inside))]
    assert found is not None
    return found


chances = st.floats(0.0, 1.0)
tables = st.integers(1, 4).flatmap(
    lambda models: st.lists(st.lists(chances, min_size=models, max_size=models), min_size=1, max_size=6)
)


@given(tables)
@settings(max_examples=60, deadline=None)
def test_selection_is_that_of_its_definition_and_never_worse_than_the_best_model(columns):
    inside = [list(row) for row in zip(*columns, strict=True)]
    found = selected(torch.tensor(inside, dtype=torch.float64))
    assert float(found.sum()) == pytest.approx(1.0)
    assert bool((found >= 0).all())
    alone = min(loss([float(m == own) for m in range(len(inside))], inside) for own in range(len(inside)))
    reached = loss(found.tolist(), inside)
    assert reached <= alone + 1e-9
    assert reached == pytest.approx(loss(slowly(inside), inside), abs=1e-9)


def test_the_weights_of_two_models_are_the_best_of_all_multiples_up_to_rounding():
    stream = torch.Generator().manual_seed(3)
    inside = torch.rand(2, 500, generator=stream, dtype=torch.float64)
    share = torch.linspace(0, 1, 2001, dtype=torch.float64)
    losses = -(share[:, None] * inside[0] + (1 - share[:, None]) * inside[1]).log().mean(1)
    assert float(selected(inside)[0]) == pytest.approx(float(share[losses.argmin()]), abs=1 / ROUNDS)


def test_a_model_that_diverged_is_never_taken():
    inside = torch.tensor([[0.5, 0.5], [math.nan, 0.9], [0.1, 0.2]])
    assert selected(inside).tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(DataError, match="no model"):
        selected(inside[1:2])


def test_an_average_gives_the_logarithm_of_the_weighted_probabilities_for_any_logits():
    members = [nn.Linear(3, 4), nn.Linear(3, 4)]
    share, temperature = torch.tensor([0.25, 0.75]), torch.tensor([0.5, 2.0])
    network = Average(members, share, temperature)
    x = torch.randn(7, 3)
    wanted = 0.25 * (members[0](x) / 0.5).softmax(1) + 0.75 * (members[1](x) / 2).softmax(1)
    torch.testing.assert_close(network(x), wanted.log())
    torch.testing.assert_close(
        network.uncalibrated()(x).exp(), 0.25 * members[0](x).softmax(1) + 0.75 * members[1](x).softmax(1)
    )
    assert bool(torch.isfinite(network(1e6 * x)).all())


def test_models_of_one_choice_are_averaged_by_their_logits():
    members = [nn.Linear(3, 4) for _ in range(4)]
    share, temperature = torch.tensor([0.25, 0.75]), torch.tensor([0.5, 2.0])
    x = torch.randn(7, 3)
    first, second = (members[0](x) + members[1](x)) / 2, (members[2](x) + members[3](x)) / 2
    wanted = 0.25 * (first / 0.5).softmax(1) + 0.75 * (second / 2).softmax(1)
    torch.testing.assert_close(Average(members, share, temperature)(x).exp(), wanted)


@pytest.fixture(scope="module")
def fitted() -> tuple[Data, fitting.Fitted, fitting.HeldOut, fitting.FitOptions]:
    """Two regions: in one a line tells the classes apart, in the other it takes trees, so that both are of use."""
    x, y, sets = quadrants(260)
    data = Data(name="made", x=x.double(), candidates=sets, num_classes=4, known_y=y)
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), budget="quick")
    return data, *fitting.fit_and_report(data, REGISTRY, options), options


def test_a_fit_averages_the_models_of_all_folds_by_the_sets_that_each_of_them_did_not_see(fitted):
    _, found, report, options = fitted
    assert isinstance(found.choice, AverageChoice)
    assert found.choice.models == 5
    assert isinstance(found.network, Average)
    assert len(found.network.members) == 5 * len(found.choice.parts)
    assert float(found.network.share.sum()) == pytest.approx(1.0)
    weights = [part.weight for part in found.choice.parts]
    assert weights == sorted(weights, reverse=True)
    assert report.accuracy > 0.8
    about = fitting.describe(options, found)
    assert [each["name"] for each in about["backbones"][::5]] == [each["model"] for each in about["averaged"]]
    assert title(about).startswith(f"{averaging.NAME} ({found.choice.parts[0].choice.name} ")


def test_what_the_user_named_is_not_averaged():
    x, _, sets = quadrants(60)
    data = Data(name="made", x=x.double(), candidates=sets, num_classes=4)
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), backbone=("linear", {}), budget="quick", epochs=1)
    found = fitting.fit(data, REGISTRY, options, torch.arange(60))
    assert len(found.tried) > 1
    assert found.choice.name == "linear"


def test_no_calibration_leaves_every_temperature_at_one_and_before_means_that(fitted):
    data, found, report, options = fitted
    index = torch.randperm(len(data.x), generator=fitting.stream(options.seed, "split"))
    held_out = index[: round(fitting.HELD_OUT * len(index))].sort().values
    wanted = calibration.calibration_error(
        found.uncalibrated().logits(data.x, held_out).softmax(1), data.known_y[held_out]
    )
    assert report.calibration_error_before == pytest.approx(wanted)
    assert not torch.equal(found.uncalibrated().logits(data.x), found.logits(data.x))
    plain = fitting.fit(data, REGISTRY, attrs.evolve(options, calibrate=False), torch.arange(60))
    assert plain.temperature == 1.0
    assert plain.network.temperature.tolist() == [1.0] * len(plain.choice.parts)


def test_refit_trains_every_averaged_choice_once_on_all_examples(fitted):
    data, found, _, options = fitted
    learner = fitting._learner(data, REGISTRY, options, None, None)
    again = fitting._refitted(learner, found, options)
    assert again.choice.models == 1
    assert len(again.network.members) == len(found.choice.parts)
    assert [part.weight for part in again.choice.parts] == [part.weight for part in found.choice.parts]
    assert torch.equal(again.transform.shift, data.fit_inputs(torch.arange(len(data.x))).shift)
    (made,) = learner.fit([again.choice.parts[0].choice], [(torch.arange(len(data.x)), torch.arange(0))])
    inputs = again.transform(data.x[:20])
    torch.testing.assert_close(again.network.members[0](inputs), made[0].network(inputs))


@pytest.fixture
def saved(fitted, tmp_path) -> tuple[Data, fitting.Fitted, Model]:
    data, found, report, options = fitted
    about = {**fitting.describe(options, found), "held_out": report.to_dict()}
    model_file.model_from(found, data, about).save(tmp_path / "m.safetensors")
    return data, found, Model.load(tmp_path / "m.safetensors", REGISTRY)


def test_an_average_is_one_file_and_predicts_the_same(saved):
    data, found, loaded = saved
    torch.testing.assert_close(loaded.probabilities(data.x), found.logits(data.x).softmax(1), rtol=0, atol=1e-6)
    assert loaded.about["code"].keys() >= {"backbone linear", "estimator cc"} & loaded.about["code"].keys()


@pytest.mark.parametrize("name", ["m.safetensors", "m.pt2", pytest.param("m.onnx", marks=pytest.mark.system)])
def test_an_average_with_trees_is_exported_as_any_model_is(saved, tmp_path, name):
    _, found, loaded = saved
    assert any(isinstance(member, TreeEnsemble) for member in found.network.members)
    made = export.export(loaded, export.choose_format(None, tmp_path / name), tmp_path / name, REGISTRY)
    assert made.largest_difference < 1e-5
    assert made.facts["averaged"] == loaded.about["averaged"]


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("share", lambda old: -old),
        ("share", lambda old: 2 * old),
        ("share", lambda old: old[1:]),
        ("share", lambda old: old.double()),
        ("temperature", lambda old: 0 * old),
        ("temperature", lambda old: old * math.nan),
        ("members", lambda old: None),
        ("backbones", lambda old: old[1:]),
        ("backbones", lambda old: []),
        ("backbones", lambda old: "linear"),
    ],
)
def test_a_file_whose_average_is_none_is_refused(saved, tmp_path, what, value):
    path = tmp_path / "m.safetensors"
    with safe_open(str(path), framework="pt") as file:
        meta = json.loads(file.metadata()[TEXT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if what == "members":
        tensors = {name: value for name, value in tensors.items() if not name.startswith("network.members.0.")}
    elif what == "backbones":
        meta["about"]["backbones"] = value(meta["about"]["backbones"])
    else:
        tensors[f"network.{what}"] = value(tensors[f"network.{what}"])
    text = json.dumps(meta)
    save_file(tensors, path, metadata={TEXT: text, model_file.CHECKSUM: model_file.checksum(text, tensors)})
    with pytest.raises(DataError, match=r"is not a complete model|does not fit"):
        Model.load(path, REGISTRY)
