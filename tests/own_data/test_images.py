"""Images get a convolutional network that is trained on moved images, if held-out sets favour it."""

from __future__ import annotations

import pytest
import torch

from benchmarks import shapes
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import choices, fitting, model_file, trees
from wsl_toolkit.own_data.choices import NetworkChoice, Size
from wsl_toolkit.own_data.model_file import Model
from wsl_toolkit.plugins.loading import load_plugins

REGISTRY = load_plugins().registry


def made(images: int, size: int) -> Data:
    x, y, mask = shapes.make(images, size)
    return Data(
        name="shapes",
        x=torch.from_numpy(x).unsqueeze(1),
        y=torch.from_numpy(y),
        candidates=CandidateSets.from_mask(mask),
        num_classes=len(shapes.SHAPES),
        class_names=shapes.SHAPES,
        normalise="per-channel",
    )


def planned(shape: tuple[int, ...], budget: str, examples: int = 500) -> choices.Plan:
    features = int(torch.tensor(shape).prod())
    size = Size(examples=examples, features=features, classes=6, shape=shape)
    trainings = fitting.options_for(REGISTRY, estimator=("cc", {}), budget=budget).trainings(examples)
    return choices.plan(size, budget, REGISTRY, trainings, fits=1, whole=examples)


def test_images_are_tried_with_convolutions_small_ones_as_tables():
    for budget in choices.BUDGETS:
        found = planned((1, 32, 32), budget).choices
        assert {choice.name for choice in found} == {"linear", "lenet"}
        assert all((choice.training.augmentation == "weak") == (choice.name == "lenet") for choice in found)
    assert {choice.name for choice in planned((1, 8, 8), "normal").choices} == {"linear", "mlp", trees.NAME}


def test_one_convolutional_network_is_tried_however_small_the_budget():
    found = planned((3, 224, 224), "quick", examples=20_000).choices
    assert [choice.name for choice in found].count("lenet") == 1


def test_the_default_beats_the_linear_model_and_is_saved_as_the_network_alone(tmp_path):
    data = made(240, 16)
    options = fitting.options_for(REGISTRY, estimator=("ppl", {}), budget="quick")
    fitted, report = fitting.fit_and_report(data, REGISTRY, options)
    assert isinstance(fitted.choice, NetworkChoice)
    assert fitted.choice.name == "lenet"
    linear, lenet = (min(e["set_log_loss"] for e in fitted.tried if e["model"] == name) for name in ("linear", "lenet"))
    assert lenet < linear
    about = {**fitting.describe(options, fitted), "held_out": report.to_dict(), "input_dtype": "uint8"}
    assert about["training"]["augmentation"] == "weak"
    model_file.model_from(fitted, data, about).save(tmp_path / "m.safetensors")
    loaded = Model.load(tmp_path / "m.safetensors", REGISTRY)
    torch.testing.assert_close(loaded.probabilities(data.x), fitted.logits(data.x).softmax(1), rtol=0, atol=1e-5)


def test_images_learn_along_a_cosine_and_a_refit_learns_as_what_was_chosen():
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), budget="quick", seed=1)
    found = planned((1, 16, 16), "quick").choices[-1]
    sized = fitting._for_size(found, options, 700)
    assert (sized.training.augmentation, sized.training.scheduler) == ("weak", "cosine")
    linear = fitting._for_size(planned((1, 16, 16), "quick").choices[0], options, 700)
    assert (linear.training.augmentation, linear.training.scheduler) == ("none", "none")


@pytest.mark.long
def test_six_hundred_shapes_of_which_the_default_gets_nearly_all_and_a_linear_model_half():
    data = made(600, 32)
    _, default = fitting.fit_and_report(data, REGISTRY, fitting.options_for(REGISTRY, estimator=("ppl", {})))
    chosen = fitting.options_for(REGISTRY, estimator=("ppl", {}), backbone=("linear", {}))
    _, linear = fitting.fit_and_report(data, REGISTRY, chosen)
    assert default.accuracy >= 0.95
    assert linear.accuracy <= 0.6
