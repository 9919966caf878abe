"""`--augmentation`: every estimator's network may see augmented copies of its batches, from a stream of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
import torch
from torch import Tensor, nn

import wsl_toolkit as wsl
from wsl_toolkit import augmentation
from wsl_toolkit.components import Backbone
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import InterruptedRunError
from wsl_toolkit.networks import Augmented, Extended, plain
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.build import make_model, make_trainer
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.config import AUGMENTATIONS, Training
from wsl_toolkit.training.train import TrainingJob, train, why_never_stacked
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

REGISTRY = load_plugins().registry
SHORT = Training(epochs=3, batch_size=64, lr=0.05, device="cpu", validation=0.1, augmentation="weak")


@attrs.frozen(kw_only=True)
class Dropping(Backbone):
    """A small network with dropout."""

    name: ClassVar[str] = "dropping"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        first = nn.Linear(math.prod(input_shape), 16)
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, num_classes))


@pytest.fixture(scope="module")
def problem() -> Problem:
    data = REGISTRY.create("dataset", "digits", {}).load(Path())
    few = attrs.evolve(data, x=data.x[:400], y=data.y[:400])
    return make_problem(few, REGISTRY.create("generator", "mcl-skewed", {}), seed=0, validation=0.1, test=0.3)


def a_job(problem: Problem, method: str = "ppl", **changes: object) -> TrainingJob:
    known = attrs.fields_dict(Training)
    return TrainingJob(
        problem=problem,
        estimator=REGISTRY.create("estimator", method, {}),
        backbone=Dropping(),
        training=attrs.evolve(SHORT, **{key: value for key, value in changes.items() if key in known}),
        seed=0,
        **{key: value for key, value in changes.items() if key not in known},  # type: ignore[arg-type]
    )


def test_the_names_are_those_that_there_are() -> None:
    assert tuple(augmentation.AUGMENTATIONS) == AUGMENTATIONS


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 8, 8), (6,)], ids=["colour", "grey", "table"])
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_augmentation_keeps_shape_and_type_and_the_batch_itself(name: str, shape: tuple[int, ...]) -> None:
    inputs = torch.randn(32, *shape)
    before = inputs.clone()
    seen = augmentation.AUGMENTATIONS[name](inputs)
    assert (seen.shape, seen.dtype) == (inputs.shape, inputs.dtype)
    assert torch.equal(inputs, before)
    same = name == "none" or (name == "weak" and len(shape) == 1)
    assert torch.equal(seen, inputs) == same


def test_a_tables_cutout_drops_a_tenth_and_an_images_blanks_a_square() -> None:
    torch.manual_seed(0)
    dropped = augmentation.weak_and_cutout(torch.ones(1000, 50)) == 0
    assert float(dropped.float().mean()) == pytest.approx(augmentation.TABLE_DROPPED, abs=0.005)
    blank = augmentation.weak_and_cutout(torch.ones(200, 1, 16, 16)) == 0
    assert 0.05 < float(blank.float().mean()) < 0.32
    assert bool(blank.flatten(1).any(1).all())


def test_training_sees_copies_evaluation_the_batch_and_the_global_stream_is_left_alone() -> None:
    network = Augmented(nn.Flatten(), augmentation.weak, seed=3)
    x = torch.randn(64, 3, 16, 16)
    before = torch.get_rng_state()
    first, second = network.train()(x), network(x)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first, second)
    assert not torch.equal(first, x.flatten(1))
    assert torch.equal(network.eval()(x), x.flatten(1))
    again = Augmented(nn.Flatten(), augmentation.weak, seed=3)
    again.load_state_dict({"_extra_state": 1})
    assert torch.equal(again.train()(x), second)


def test_dropout_and_initialisation_are_the_same_with_and_without(problem: Problem) -> None:
    """Copies that are the batch itself (a weak view of a table) change no bit."""
    parts = {name: as_rows(getattr(problem, name)) for name in ("train_x", "validation_x", "test_x")}
    rows = attrs.evolve(problem, **parts)
    with_copies, without = (train([a_job(rows, augmentation=name)])[0] for name in ("weak", "none"))
    assert [record.metrics for record in with_copies.records] == [record.metrics for record in without.records]


def as_rows(inputs: object) -> Tensor:
    assert isinstance(inputs, Tensor)
    return inputs.flatten(1)


@pytest.mark.parametrize("method", ["ppl", "proden", "cc"])
def test_a_training_with_dropout_that_is_stopped_goes_on_to_the_same_bits(
    problem: Problem, method: str, tmp_path: Path
) -> None:
    def saved_in(folder: Path) -> Callable[[Problem], TrialCheckpoints]:
        return lambda _: TrialCheckpoints(Checkpoints(folder), {})

    (whole,) = train([a_job(problem, method, augmentation="strong")])
    looks = 0

    class Stop(StopRequest):
        def __call__(self) -> bool:
            nonlocal looks
            looks += 1
            self.signal = 2 if looks > 6 else None
            return super().__call__()

    stopped = a_job(problem, method, augmentation="strong", checkpoints=saved_in(tmp_path))
    with pytest.raises(InterruptedRunError):
        train([stopped], stop=Stop())
    (resumed,) = train([a_job(problem, method, augmentation="strong", checkpoints=saved_in(tmp_path))])
    assert [record.metrics for record in resumed.records] == [record.metrics for record in whole.records]
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_methods_with_views_keep_theirs_and_the_trained_model_is_the_network_alone(problem: Problem) -> None:
    for method in ("ppl", "pico"):
        model = make_model(problem, REGISTRY.create("estimator", method, {}), Dropping(), "weak", seed=0)
        wrapped = any(isinstance(module, Augmented) for module in model.modules())
        assert wrapped == (method == "ppl")
        assert not any(isinstance(module, Augmented | Extended) for module in plain(model).modules())


def test_augmented_models_train_one_by_one(problem: Problem) -> None:
    assert why_never_stacked(a_job(problem)) == "each sees augmented copies of its own"
    assert why_never_stacked(a_job(problem, augmentation="none")) is None
    trainer = make_trainer(problem, a_job(problem).estimator, a_job(problem).backbone, SHORT, 0)
    assert isinstance(trainer.model, Augmented)


@pytest.mark.usefixtures("fresh_database")
def test_a_tracked_run_says_it_and_its_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"estimator": "ppl", "epochs": 1, "augmentation": "cutout"}
    tracked, untracked = wsl.train("digits", **given, track=True), wsl.train("digits", **given, track=False)
    assert tracked.config["augmentation"] == "cutout"
    assert tracked.metrics == untracked.metrics
    assert tracked.run_id is not None
    loaded = wsl.load_run(tracked.run_id)
    for one, other in zip(tracked.model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(one, other)
