"""Images stay bytes in memory and are scaled as they are used, to the bits that scaling them once would give."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data, transform_inputs
from wsl_toolkit.data.inputs import StreamedInputs
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training import residency
from wsl_toolkit.training import train as training
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import predict

REGISTRY = load_plugins().registry
PARTS = ("train_x", "validation_x", "test_x")


def photographs(n: int = 150, channels: int = 3, seed: int = 0) -> Data:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(256, (n, channels, 16, 16), dtype=torch.uint8, generator=rng)
    y = torch.arange(n) % 5
    return Data(name="photographs", x=x, y=y, num_classes=5, normalise="per-channel")


def problem_of(data: Data) -> Problem:
    generator = REGISTRY.create("generator", "mcl-skewed", {})
    return make_problem(data, generator, seed=0, validation=0.2, test=0.2)


def scaled_once(problem: Problem) -> Problem:
    """The problem as it was before bytes could stay: every part as one tensor of float32."""
    return attrs.evolve(problem, **{name: getattr(problem, name).whole() for name in PARTS})


def trained(problem: Problem, backbone: str, **settings: Any) -> training.Trained:
    job = training.TrainingJob(
        problem=problem,
        estimator=REGISTRY.create("estimator", "ppl", {}),
        backbone=REGISTRY.create("backbone", backbone, {}),
        training=Training(epochs=2, batch_size=16, **settings),
        seed=0,
    )
    return training.train([job])[0]


def test_bytes_stay_bytes_and_are_what_scaling_them_once_gives() -> None:
    data = photographs()
    problem = problem_of(data)
    for name in PARTS:
        inputs = getattr(problem, name)
        assert isinstance(inputs, StreamedInputs)
        assert inputs.in_memory
        assert inputs.nbytes == 8 * len(inputs)  # its index, and no copy of the images
        everything = inputs.gather(torch.arange(len(inputs)))
        assert torch.equal(everything, transform_inputs(problem.transform, data.x, inputs._index))
        assert torch.equal(everything, inputs.whole())


@pytest.mark.parametrize("channels_last", [False, True])
def test_chunks_of_bytes_are_scaled_rows_in_the_layout_that_was_asked_for(channels_last: bool) -> None:
    problem = problem_of(photographs())
    whole = scaled_once(problem).train_x
    assert isinstance(problem.train_x, StreamedInputs)
    assert isinstance(whole, Tensor)
    inputs = problem.train_x.laid_out(channels_last)
    indices = torch.randperm(len(inputs)).split(40)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    for index, chunk in zip(indices, inputs.chunks(indices), strict=True):
        assert torch.equal(chunk, whole[index])
        assert chunk.is_contiguous(memory_format=layout)


@pytest.mark.parametrize(("backbone", "augmentation"), [("lenet", "none"), ("lenet", "weak"), ("mlp", "none")])
def test_bytes_train_to_the_bits_of_numbers_that_were_scaled_before(backbone: str, augmentation: str) -> None:
    problem = problem_of(photographs())
    one = trained(problem, backbone, augmentation=augmentation)
    other = trained(scaled_once(problem), backbone, augmentation=augmentation)
    assert [record.metrics for record in one.records] == [record.metrics for record in other.records]
    for mine, reference in zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(mine, reference)


def make(problem: Problem, backbone: str) -> Any:
    parts = (REGISTRY.create("estimator", "ppl", {}), REGISTRY.create("backbone", backbone, {}))
    return make_trainer(problem, *parts, Training(batch_size=16), 0)


def test_a_linear_model_has_its_bytes_scaled_once_and_larger_networks_do_not() -> None:
    problem = problem_of(photographs())
    assert isinstance(make(problem, "lenet").inputs, StreamedInputs)
    assert isinstance(problem.train_x, StreamedInputs)
    assert problem.train_x.missing_bytes == 4 * len(problem.train_x) * 3 * 16 * 16
    one, other = make(problem, "linear"), make(problem, "linear")
    assert not isinstance(one.inputs, StreamedInputs)
    assert one.inputs.same_as(other.inputs)  # so that they can be a stack
    assert problem.train_x.missing_bytes == 0


def test_a_linear_model_takes_bytes_as_they_are_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(photographs())
    reference = trained(problem, "linear")
    short = problem_of(photographs())
    monkeypatch.setattr(residency, "free_memory", lambda: 1000)
    assert isinstance(make(short, "linear").inputs, StreamedInputs)
    assert trained(short, "linear").final == reference.final


def test_predicting_first_leaves_inputs_that_can_be_trained_on() -> None:
    problem = problem_of(photographs())
    trainer = make(problem, "lenet")
    before = predict(trainer.model, trainer.inputs)  # in inference mode, whose tensors could not be trained on
    assert before.shape == (len(trainer.inputs), 5)
    assert len(list(trainer.epochs(1))) == 1


def test_a_stack_of_perceptrons_learns_from_bytes_in_orders_of_their_own() -> None:
    problem = problem_of(photographs())

    def both(given: Problem) -> list[training.Trained]:
        jobs = [
            training.TrainingJob(
                problem=given,
                estimator=REGISTRY.create("estimator", "ppl", {}),
                backbone=REGISTRY.create("backbone", "mlp", {"widths": (8,)}),
                training=Training(epochs=2, batch_size=16),
                seed=seed,
            )
            for seed in (0, 1)
        ]
        return training.train(jobs)

    stacked = both(problem)
    assert [each.stacked for each in stacked] == [2, 2]
    for one, other in zip(stacked, both(scaled_once(problem)), strict=True):
        assert one.final == other.final


@pytest.mark.parametrize("name", ["mcl-skewed", "flip-class", "proper-instance"])
def test_generators_that_read_no_inputs_are_given_none_and_draw_the_same_sets(name: str) -> None:
    data = photographs()
    generator = REGISTRY.create("generator", name, {})
    problem = make_problem(data, generator, seed=3, validation=0.0, test=0.2)
    assert generator.reads_inputs() == (name == "proper-instance")
    told = attrs.make_class("Told", [], bases=(type(generator),), frozen=True, kw_only=True)
    told.reads_inputs = lambda self: True
    same = make_problem(data, told(), seed=3, validation=0.0, test=0.2)
    assert same.train_candidates == problem.train_candidates


def test_what_fits_lies_on_the_device_and_of_what_does_not_batches_go_there() -> None:
    problem = problem_of(photographs())
    inputs, device = problem.train_x, torch.device("meta")
    assert isinstance(inputs, StreamedInputs)
    there = residency.placed(inputs, device, room=3 * inputs.row_bytes)
    assert isinstance(there, StreamedInputs)
    assert (there.is_elsewhere, residency.how_kept(there)) == (False, "")
    batches = residency.placed(inputs, device, room=3 * inputs.row_bytes - 1)
    assert isinstance(batches, StreamedInputs)
    assert batches.is_elsewhere
    assert "in batches" in residency.how_kept(batches)
    for placed in (there, batches):
        chunk = next(placed.chunks([torch.arange(4)]))
        assert (chunk.device.type, chunk.shape, chunk.dtype) == ("meta", (4, 3, 16, 16), torch.float32)
    numbers = inputs.whole()
    assert isinstance(residency.placed(numbers, device, room=3 * numbers.nbytes), Tensor)
    in_batches = residency.placed(numbers, device, room=numbers.nbytes)
    assert isinstance(in_batches, StreamedInputs)
    assert in_batches.gather(torch.arange(2)).device.type == "meta"


def test_rows_with_a_copy_of_their_own_are_the_same_inputs() -> None:
    inputs = problem_of(photographs()).validation_x
    assert isinstance(inputs, StreamedInputs)
    copied = inputs.resident("cpu")
    index = torch.tensor([3, 0, 3])
    assert torch.equal(copied.gather(index), inputs.gather(index))
    assert torch.equal(next(copied.chunks([index])), inputs.gather(index))


@pytest.mark.parametrize("backbone", ["linear", "lenet"])
def test_parts_without_examples_are_no_obstacle(backbone: str) -> None:
    generator = REGISTRY.create("generator", "mcl-skewed", {})
    problem = make_problem(photographs(), generator, seed=0, validation=0.0, test=0.2, clean=("train",))
    assert (len(problem.validation_x), len(problem.test_x)) == (0, 0)
    result = trained(problem, backbone)
    assert len(result.records) == 2
    assert isinstance(problem.validation_x, StreamedInputs)
    assert problem.validation_x.whole().shape == (0, 3, 16, 16)
