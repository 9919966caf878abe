"""The paper's methods on images: all learn, and none beats the oracle that sees the labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.train import TrainingJob, train

REGISTRY = load_plugins().registry
METHODS = ("supervised", "ppl", "cc", "mcl-log", "lw")
DIGITS = Training(epochs=20, lr=0.01, batch_size=64, weight_decay=1e-5)
MNIST = Training(epochs=7, lr=0.01, batch_size=256, weight_decay=1e-5)
"""A short version of the documented command, which trains five seeds for 20 epochs."""


def accuracies(dataset: str, data_dir: Path, training: Training) -> dict[str, float]:
    data = REGISTRY.create("dataset", dataset, {}).load(data_dir)
    generator = REGISTRY.create("generator", "mcl-skewed", {"alpha": 0.9})
    problem = make_problem(data, generator, seed=0, validation=0.1, test=0.2)
    return {name: accuracy(problem, name, training) for name in METHODS}


def accuracy(problem: Problem, name: str, training: Training) -> float:
    estimator, backbone = REGISTRY.create("estimator", name, {}), REGISTRY.create("backbone", "linear", {})
    job = TrainingJob(problem=problem, estimator=estimator, backbone=backbone, training=training, seed=0)
    return train([job])[0].final["test/accuracy"]


def test_the_papers_methods_learn_the_bundled_digits_and_none_beats_supervised(tmp_path: Path):
    found = accuracies("digits", tmp_path, DIGITS)
    assert min(found.values()) > 0.90, found
    assert max(found.values()) <= found["supervised"] + 0.006, found  # two of the 360 test images


@pytest.mark.data("MNIST")
def test_the_papers_methods_exceed_ninety_percent_and_none_beats_supervised(data_dir: Path):
    found = accuracies("mnist", data_dir, MNIST)
    assert min(found.values()) > 0.90, found
    assert max(found.values()) <= found["supervised"] + 0.002, found
