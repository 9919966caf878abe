"""The methods on real images: all learn, and none beats the oracle that sees the labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.train import TrainingJob, train

REGISTRY = load_plugins().registry
TRAINING = Training(epochs=7, lr=0.01, batch_size=256, weight_decay=1e-5)
"""A short version of the documented command, which trains five seeds for 20 epochs."""


@pytest.fixture(scope="module")
def problem(data_dir: Path) -> Problem:
    data = REGISTRY.create("dataset", "mnist", {}).load(data_dir)
    generator = REGISTRY.create("generator", "mcl-skewed", {"alpha": 0.9})
    return make_problem(data, generator, seed=0, validation=0.1, test=0.2)


def accuracy(problem: Problem, name: str) -> float:
    estimator, backbone = REGISTRY.create("estimator", name, {}), REGISTRY.create("backbone", "linear", {})
    job = TrainingJob(problem=problem, estimator=estimator, backbone=backbone, training=TRAINING, seed=0)
    return train([job])[0].final["test/accuracy"]


def test_the_papers_methods_exceed_ninety_percent_and_none_beats_supervised(problem: Problem):
    found = {name: accuracy(problem, name) for name in ("supervised", "ppl", "cc", "mcl-log", "lw")}
    assert min(found.values()) > 0.90, found
    assert max(found.values()) <= found["supervised"] + 0.002, found
