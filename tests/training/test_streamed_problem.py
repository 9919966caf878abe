"""Inputs too large to keep as float32 are streamed through a whole run, to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from wsl_toolkit.data import problem as problem_module
from wsl_toolkit.data.inputs import StreamedInputs
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training import train as training
from wsl_toolkit.training.config import Training


def digits() -> Problem:
    registry = load_plugins().registry
    data = registry.create("dataset", "digits", {}).load(Path())
    generator = registry.create("generator", "mcl-skewed", {})
    return make_problem(data, generator, seed=0, validation=0.1, test=0.2)


def train(problem: Problem) -> training.Trained:
    registry = load_plugins().registry
    backbone = registry.create("backbone", "linear", {})
    estimator = registry.create("estimator", "ppl", {})
    job = training.TrainingJob(
        problem=problem, estimator=estimator, backbone=backbone, training=Training(epochs=2), seed=0
    )
    return training.train([job])[0]


def test_a_run_with_little_memory_streams_its_inputs_to_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = digits()
    monkeypatch.setattr(problem_module, "free_memory", lambda: 0)
    streamed = digits()
    assert all(isinstance(x, StreamedInputs) for x in (streamed.train_x, streamed.validation_x, streamed.test_x))
    assert streamed.input_shape == in_memory.input_shape
    one, other = train(in_memory), train(streamed)
    assert [record.metrics for record in one.records] == [record.metrics for record in other.records]
    for mine, reference in zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(mine, reference)
